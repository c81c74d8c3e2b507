//go:build !torture

package torture

// On says that this program was built with the tag.
const On = false

// Removed says that the program does without a guard.
func Removed(Guard) bool { return false }

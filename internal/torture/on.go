//go:build torture

package torture

// On says that this program was built with the tag.
const On = true

var (
	removed = make(map[Guard]bool)
	tap     *Tap
)

// Remove takes a guard away from all clients that are made from now on. It must
// be called before any is made.
func Remove(g Guard) { removed[g] = true }

// Removed says that the program does without a guard.
func Removed(g Guard) bool { return removed[g] }

// Watch has all clients that are made from now on watched. It must be called
// before any is made.
func Watch(t Tap) { tap = &t }

// Watching is what was given to Watch; nil if nothing was.
func Watching() *Tap { return tap }

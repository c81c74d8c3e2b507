//go:build !torture

package claim

// weaken is how a test program takes a guard out of a statement; see
// internal/torture.
func weaken(statement string) string { return statement }

// looksBelow says that claims look below their marks from time to time.
func looksBelow() bool { return true }

//go:build !torture

package claim

// weaken is how a test program takes a guard out of a statement; see
// internal/torture.
func weaken(statement string) string { return statement }

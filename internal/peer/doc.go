// Package peer holds what all connections of Fencepost's own have in common:
// how they greet the server at the other end, and at what pace they are made
// again.
//
// The package is internal and has no promise of stability.
package peer

// Command fencepost migrates, fills, works and inspects a Fencepost queue from
// the shell. Run it without arguments for the list of commands.
package main

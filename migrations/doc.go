// Package migrations holds everything of Fencepost that creates or alters: the
// numbered SQL files, and the code that applies, reverts, lists and prints
// them, and that gives roles their rights ([Grants]). Workers never issue DDL;
// they only call [Check].
//
// Only the schema itself, the SQL functions in it and the commands of the
// fencepost binary are stable; the Go functions of this package may change
// with any minor version.
//
// Each migration runs in a transaction of its own that first takes an advisory
// lock and then reads the version, so any number of processes may migrate at
// once, also behind a pooler in transaction mode (the scheme of jackc/tern and
// River, with the lock that the latter leaves out).
package migrations

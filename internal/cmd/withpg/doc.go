// Withpg runs a command with a private PostgreSQL server:
//
//	go run ./internal/cmd/withpg [-major 15,18] -- command [argument …]
//
// The command finds the server in DATABASE_URL and its major version in
// FENCEPOST_TEST_MAJOR. With several versions it runs once for each, one after
// the other. If DATABASE_URL is set already and no version is asked for, the
// command simply gets that server.
//
// Signals are passed on to the command. Withpg ends after it, with its exit
// code (128 + n after signal n); with several versions, that of the first
// command that failed. The code is 2 for wrong usage, 1 without a server.
package main

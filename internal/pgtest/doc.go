// Package pgtest gives tests a real PostgreSQL: a database of their own each,
// or a server of their own where they stop, crash or misconfigure it.
//
// The databases are on the server that DATABASE_URL names, or else on a
// private one that is started for the test binary at the first need. Nothing
// is ever skipped for want of a server.
//
// Two more environment variables let one suite run in many ways:
// FENCEPOST_TEST_MAJOR picks the major version of private servers, and
// FENCEPOST_EXEC_MODE becomes default_query_exec_mode of pgx in the connection
// strings that New returns.
//
// The package is internal and has no promise of stability.
package pgtest

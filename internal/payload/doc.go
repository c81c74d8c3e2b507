// Package payload decides what may be stored: which JSON documents PostgreSQL
// keeps as jsonb without losing or refusing anything, and what is left of a
// text that was never meant for a database.
//
// Everything here is decided before any SQL, so that a bad document is refused
// with its place and never fails the batch it travels in.
package payload

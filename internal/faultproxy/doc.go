// Package faultproxy gives tests a bad network: a proxy between a client and
// PostgreSQL that stalls, loses, cuts or refuses connections, drops
// notifications, and delays or fails single statements.
//
// The package is internal and has no promise of stability.
package faultproxy

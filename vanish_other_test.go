//go:build !linux

package fencepost_test

import "github.com/jackc/pgx/v5"

// vanishOnSignal is for Linux alone.
func vanishOnSignal(*pgx.ConnConfig) {}

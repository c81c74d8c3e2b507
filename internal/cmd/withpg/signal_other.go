//go:build !unix

package main

import "os"

var caught = []os.Signal{os.Interrupt}

// typed is always true: there is no way to send an interrupt to one process.
func typed(os.Signal) bool { return true }

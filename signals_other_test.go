//go:build !unix

package fencepost_test

import (
	"errors"
	"syscall"
)

// There are no such signals; the tests that need them fail.
const (
	sigStop = syscall.Signal(0)
	sigCont = syscall.Signal(0)
)

func killSession(int) error { return errors.ErrUnsupported }

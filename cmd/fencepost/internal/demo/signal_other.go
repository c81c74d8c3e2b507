//go:build !unix

package demo

import (
	"errors"
	"os"
	"syscall"
)

// Here a story ends before any of this is reached.

const canFreeze = false

func attributes() *syscall.SysProcAttr { return nil }

func freeze(*os.Process) error { return errors.ErrUnsupported }

func thaw(*os.Process) error { return errors.ErrUnsupported }

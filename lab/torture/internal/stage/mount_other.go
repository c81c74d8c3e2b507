//go:build !linux

package stage

import "errors"

var errNoMount = errors.New("mount: not on this system")

// CanMount says whether Mount works here.
func CanMount() bool { return false }

// Mount does not work here.
func Mount(string, int64) error { return errNoMount }

// Unmount does not work here.
func Unmount(string) error { return errNoMount }

// Owned does not work here.
func Owned(string, string) error { return errNoMount }

func like(string, string) error { return errNoMount }

func unmountOrphans() error { return nil }

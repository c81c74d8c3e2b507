//go:build !unix

package main

import (
	"errors"
	"os/exec"
)

// group is not to be had where there are no process groups as Unix knows them.
type group struct{}

func newGroup() (*group, error) {
	return nil, errors.New("running a command for each job needs Unix; the Go API works everywhere")
}

func (*group) adopt(*exec.Cmd) {}

func (*group) terminate() error { return nil }

func (*group) end() {}

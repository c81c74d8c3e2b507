package wire

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets no child outlive the bench, however that ends.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

//go:build !torture

package crew

import (
	"github.com/fencepost-go/fencepost/internal/torture"
	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
)

// doWithout does nothing: Run has refused to do without a guard.
func doWithout(torture.Guard) {}

// watch does nothing: there is no tap.
func watch(*history.Writer) {}

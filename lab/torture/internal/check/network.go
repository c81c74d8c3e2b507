package check

import "github.com/fencepost-go/fencepost/lab/torture/internal/history"

// network is the way of a process to the server, through all its lives.
type network struct {
	cuts, apart []span // those that have ended, and the open ones
	cutOpen     bool
	apartOpen   bool
}

// cut begins a fault of the network, or adds one to those that it has: all end
// together. What nobody has named is the worst, unless it only repeats, for a
// new life, that the network has a fault.
func (n *network) cut(at int64, how string) {
	late := how == history.Late || how == "" && n.cutOpen
	if !n.cutOpen {
		n.cuts, n.cutOpen = append(n.cuts, span{at, never}), true
	}
	if !late && !n.apartOpen {
		n.apart, n.apartOpen = append(n.apart, span{at, never}), true
	}
}

func (n *network) mend(at int64) {
	if n.cutOpen {
		n.cuts[len(n.cuts)-1].to = at
	}
	if n.apartOpen {
		n.apart[len(n.apart)-1].to = at
	}
	n.cutOpen, n.apartOpen = false, false
}

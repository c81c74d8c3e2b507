package fault

import (
	"fmt"

	"github.com/fencepost-go/fencepost/lab/torture/internal/stage"
)

// Needs is what a fault asks of the stage.
type Needs struct {
	Standby bool
	Pooler  bool
	Wrong   bool // the program with a wrong clock
	Mount   bool // root, and a system on which it may mount a small file system
	Major   int  // of PostgreSQL, at least; the stage must have been told
}

// Lack says what the stage lacks; "": nothing.
func (n Needs) Lack(s *stage.Stage) string {
	o := s.Options()
	switch {
	case n.Standby && !o.Standby:
		return "the stage has no standby"
	case n.Pooler && !o.Pooler:
		return "the stage has no pooler"
	case n.Wrong && o.Wrong == "":
		return "there is no program with a wrong clock"
	case n.Mount && !stage.CanMount():
		return "no file system can be mounted here: that takes root"
	case n.Major > s.Primary().Major():
		return fmt.Sprintf("PostgreSQL %d is too old: %d is needed", s.Primary().Major(), n.Major)
	}
	return ""
}

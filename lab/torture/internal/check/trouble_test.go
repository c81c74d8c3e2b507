package check

import (
	"testing"

	staged "github.com/fencepost-go/fencepost/lab/torture/internal/fault"
)

// Of each fault it was thought about what it may be the reason of.
func TestEachFaultHasItsTrouble(t *testing.T) {
	for _, f := range staged.All {
		if _, known := troubles[f.Name]; !known {
			t.Errorf("fault %s: what does it excuse?", f.Name)
		}
	}
	for _, name := range sessionsEnd {
		if troubles[name] != rough {
			t.Errorf("fault %s ends all sessions, and is not rough", name)
		}
	}
	if troubleOf("several/kill") != calm || troubleOf("a new one") != rough {
		t.Error("faults inside of others, or unknown ones, are misjudged")
	}
}

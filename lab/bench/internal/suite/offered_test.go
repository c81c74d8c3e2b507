package suite

import (
	"math"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/lab/bench/internal/wire"
)

// What was not enqueued in time was offered all the same.
func TestDue(t *testing.T) {
	t.Parallel()
	second := int64(time.Second)
	on := wire.Produced{Scheduled: []int64{1, second}, Returned: []int64{1, second}}
	late := wire.Produced{Scheduled: []int64{1, second}, Returned: []int64{2 * second, 1}}
	if got := due(on); got != 2 {
		t.Errorf("in time: %v", got)
	}
	if got := due(late); math.Abs(got-2-offeredRate) > 1e-6 {
		t.Errorf("a second late: %v", got)
	}
}

// The worker keeps up with what little is offered.
func TestOffer(t *testing.T) {
	t.Parallel()
	o, err := open(t).offer(t.Context(), entrant{peer: "fencepost", o: wire.Options{Keep: true}}, 50, 0)
	if err != nil {
		t.Fatal(err)
	}
	if o.completed <= 0 || o.completed > 1 || o.rate <= 0 || o.backlog > 50 || o.settings == "" {
		t.Errorf("%+v", o)
	}
}

package crew

import (
	"sync/atomic"
	"testing"
)

func TestTheLastIsTheLatest(t *testing.T) {
	t.Parallel()
	var last atomic.Int64
	for _, at := range []int64{2, 5, 3} {
		raise(&last, at)
	}
	if got := last.Load(); got != 5 {
		t.Error(got)
	}
}

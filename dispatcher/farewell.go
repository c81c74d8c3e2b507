package dispatcher

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// farewell waits for the goroutines that call the Store, whose contexts are
// cancelled by now, and says what is left behind; nil: nothing.
func (l *loop) farewell(callers <-chan struct{}) error {
	var left []string
	if len(l.left) > 0 {
		left = append(left, "handlers still running: "+jobs(l.left))
	}
	var unstored []int64
	for _, h := range l.leases.held {
		if !slices.Contains(l.left, h.row.ID) {
			unstored = append(unstored, h.row.ID)
		}
	}
	if len(unstored) > 0 {
		left = append(left, "outcomes not stored: "+jobs(unstored))
	}
	if !allBack(callers) {
		left = append(left, "a call of the store has not returned")
	}
	if len(left) == 0 {
		return nil
	}
	err := fmt.Errorf("dispatcher: %w: %s", ErrStuck, strings.Join(left, "; "))
	if l.storing.err != nil {
		err = fmt.Errorf("%w (last error of the store: %w)", err, l.storing.err)
	}
	return err
}

// allBack waits for each of the callers, as long as leavingTime.
func allBack(callers <-chan struct{}) bool {
	patience := time.NewTimer(leavingTime)
	defer patience.Stop()
	for range cap(callers) {
		select {
		case <-callers:
		case <-patience.C:
			return false
		}
	}
	return true
}

func jobs(ids []int64) string {
	slices.Sort(ids)
	return "jobs " + strings.Trim(fmt.Sprint(ids), "[]")
}

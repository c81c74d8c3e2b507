package fencepost

import (
	"errors"
	"testing"
	"time"
)

// Each part of a walk is read until it could be; then the walk goes on, and one
// that is over is not begun again before its time.
func TestAPartThatCannotBeReadIsReadAgain(t *testing.T) {
	t.Parallel()
	var a adoption
	now := time.Now()
	for i, step := range []struct {
		pause time.Duration
		due   bool
		page  int64 // that is read
		next  int64
		err   error
	}{
		{0, true, 0, 0, errors.New("no")},
		{time.Second, true, 0, 100, nil},
		{time.Second, true, 100, 0, errors.New("no")},
		{time.Second, true, 100, 200, nil},
		{time.Second, true, 200, 0, nil},
		{time.Second, false, 0, 0, nil},
		{adoptEvery, true, 0, 0, nil},
	} {
		now = now.Add(step.pause)
		if due := a.due(now, false, 0); due != step.due || due && a.page != step.page {
			t.Fatalf("step %d: due %v, page %d", i+1, due, a.page)
		}
		if step.due {
			a.took(step.next, step.err)
		}
	}
}

// Of many processes that start, one walks through the table at once.
func TestTheFirstProcessWalks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var first, second adoption
	if !first.due(now, false, 0) || second.due(now, false, 1) {
		t.Error("not the first alone walks at its start")
	}
	if !second.due(now, true, 1) {
		t.Error("the second does not walk while old programs work")
	}
	second = adoption{born: now}
	if second.due(now.Add(adoptFirst-1), false, 1) || !second.due(now.Add(adoptFirst), false, 1) {
		t.Error("the second does not walk a minute later")
	}
	if second.due(now.Add(adoptEvery), false, 0) || !second.due(now.Add(adoptFirst+adoptEvery), false, 0) {
		t.Error("the second does not walk again in its time")
	}
	if second = (adoption{born: now}); !second.due(now, false, 0) {
		t.Error("the second does not walk when it has become the first")
	}
	second = adoption{born: now.Add(-adoptFirst)}
	second.due(now, false, 1)
	second.took(0, errors.New("no"))
	if !second.due(now, false, 1) {
		t.Error("the second does not read again what it could not read")
	}
}

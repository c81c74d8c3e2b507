package check

import "slices"

const (
	// pauseEnough is how much of a lease a process must have been frozen for its
	// lease to run out by that: it is extended when a third is over, and a pause
	// of 0.6 of one must do no harm.
	pauseEnough = 0.62
	// wakeUp is how long after a long pause a process may need until it runs, on
	// a machine that is busy, and drowsy how long from then on until its leases
	// are extended, in ns. Of a short lease a pause of 0.6 leaves less than that.
	wakeUp = 500e6
	drowsy = 250e6
)

// overslept says that a lease which ran until then may be over because the
// process was frozen: for most of it until it was taken, or for more than half
// until just before its end.
func (p *process) overslept(end, lease, taken int64) bool {
	if float64(within(p.pauses, end-lease, taken)) >= pauseEnough*float64(lease) {
		return true
	}
	return slices.ContainsFunc(p.pauses, func(s span) bool {
		return s.to <= end && 2*within([]span{s}, end-lease, end) > lease && end <= p.awake(s.to)+drowsy
	})
}

// awake is when the process was seen to run again after a pause. It cannot do
// anything before it runs, but it has to run soon.
func (p *process) awake(resumed int64) int64 {
	i, _ := slices.BinarySearch(p.acts, resumed)
	if i < len(p.acts) {
		return min(p.acts[i], resumed+wakeUp)
	}
	return resumed + wakeUp
}

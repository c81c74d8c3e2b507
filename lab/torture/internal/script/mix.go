package script

// InBursts is the share of the load that comes in bursts, unless a run says
// otherwise: so many that a promise to look without bells is often in force, and
// so few that the rest is the same all the time.
const InBursts = 0.25

// DefaultMix is the load unless a run says otherwise: mostly short jobs, and
// some of every other kind. Of ten thousand jobs six end the process that works
// them, two of them in each of their three attempts: each such end takes some
// dozens of other jobs along.
var DefaultMix = Mix{
	Short:    0.5974,
	Long:     0.020,
	Fail:     0.060,
	Later:    0.030,
	Snooze:   0.040,
	Panic:    0.020,
	Exit:     0.0004,
	Killer:   0.0002,
	Deaf:     0.005,
	Tx:       0.080,
	SlowTx:   0.010,
	Rollback: 0.030,
	Parent:   0.030,
	Fenced:   0.040,
	Hopeless: 0.010,
	Off:      0.010,
	Progress: 0.017,
}

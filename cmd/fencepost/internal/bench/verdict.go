package bench

import (
	"fmt"
	"strings"
	"time"
)

// Limit is what holds something up.
type Limit string

const (
	Disk    Limit = "disk"               // how often it confirms that a commit is safe
	Network Limit = "network"            // the way there and back
	CPU     Limit = "cpu"                // the server's processors
	Client  Limit = "client"             // this program, or the way to it
	Standby Limit = "standby"            // it confirms each commit
	Bell    Limit = "notify"             // commits with a notification go one by one
	Locks   Limit = "locks"              // others
	Pooler  Limit = "pooler"             // it carries no notifications
	Unsafe  Limit = "synchronous_commit" // what was measured is not durable
	None    Limit = "none"               // it is as fast as it can be here
)

// Verdict is a plain sentence about what was seen.
type Verdict struct {
	About string // "server", "commit", "enqueue", "wake" or "drain"
	Limit Limit
	Text  string
}

// Judge says what limits this database. It looks at nothing else than what was
// seen.
func Judge(s Seen) []Verdict {
	return append(judgeServer(s),
		judgeCommit(s),
		judgeEnqueue(s),
		judgeWake(s),
		judgeDrain(s))
}

// judgeServer says what to know before any figure is believed.
func judgeServer(s Seen) (list []Verdict) {
	say := func(limit Limit, format string, args ...any) {
		list = append(list, Verdict{"server", limit, fmt.Sprintf(format, args...)})
	}
	if !s.Server.Fsync {
		say(Unsafe, "fsync is off: nothing is safe when the machine fails, and no figure here says what a safe commit costs.")
	}
	if !waitsForDisk(s.Server) {
		say(Unsafe, "synchronous_commit is %s: a crash may lose jobs whose enqueue was acknowledged, and the figures of commit and enqueue leave out what their safety costs; claims and outcomes are durable all the same.", s.Server.SynchronousCommit)
	}
	if s.Server.Pooled {
		if s.heard() {
			say(Pooler, "A pooler sits between; notifications get through on the way that listens. Each statement goes through it, which is part of every figure.")
		} else {
			say(Pooler, "A pooler sits between, and carries no notifications: give workers a direct way for listening (--listen-url, Config.ListenConfig).")
		}
	}
	if list == nil && !s.heard() {
		say(Pooler, "No notification arrives, although the server says that no pooler sits between; fencepost doctor looks into it.")
	}
	return list
}

// heard reports that notifications arrive.
func (s Seen) heard() bool { return s.Notify.N > 0 }

// waitsForDisk reports that a commit returns when it is safe, here at least.
func waitsForDisk(s Server) bool { return s.SynchronousCommit != "off" }

// waitsForStandby reports that a commit returns when a standby has it.
func waitsForStandby(s Server) bool {
	return s.Standbys != "" && s.SynchronousCommit != "off" && s.SynchronousCommit != "local"
}

func judgeCommit(s Seen) Verdict {
	all, way := s.Commit.P50, s.RoundTrip.P50
	v := Verdict{About: "commit"}
	facts := fmt.Sprintf("One connection commits %s times a second: a commit takes %s (median), of which %s are the way there and back.", count(s.Commits.PerSecond), span(all), span(way))
	switch {
	case way*2 >= all:
		v.Limit = Network
		v.Text = facts + " That limits it, not the disk: enqueue several jobs at once, or come nearer if there is a network in between."
	case limitOf(s, s.CommitWaits) == Standby:
		v.Limit = Standby
		v.Text = facts + " Most of the rest is the synchronous standby's answer."
	case limitOf(s, s.CommitWaits) == Disk:
		v.Limit = Disk
		v.Text = facts + " The rest is the disk, which has to confirm each commit: faster storage for the WAL helps, and so does enqueueing several jobs at once."
	default:
		v.Limit = CPU
		v.Text = facts + " The rest is the server's work, not its disk."
	}
	return v
}

// limitOf says what the sessions waited for; where they could not be seen, as
// behind some poolers, what a commit waits for by the settings.
func limitOf(s Seen, w Waits) Limit {
	switch most := w.most(); {
	case most != "":
		return most
	case waitsForStandby(s.Server):
		return Standby
	case waitsForDisk(s.Server) && s.Server.Fsync:
		return Disk
	default:
		return CPU
	}
}

var enqueueTexts = map[Limit]string{
	Disk:    "They wait for the disk, which confirms the commits of several at once; faster storage for the WAL helps, and so does enqueueing several jobs in one commit.",
	Standby: "They wait for the synchronous standby.",
	Bell:    "They wait for each other: a server lets commits with a notification through one by one, each with its own wait for the disk. A busy worker makes producers silent, so this holds while there is none.",
	Locks:   "They wait for each other's locks in the server.",
	CPU:     "The server's processors limit it.",
	Client:  "The server waits for this program, or for the way to it.",
}

func judgeEnqueue(s Seen) Verdict {
	limit := limitOf(s, s.SixteenWaits)
	return Verdict{"enqueue", limit, fmt.Sprintf("16 clients enqueue %s jobs a second, %.1f times as many as one. %s",
		count(s.Sixteen.PerSecond), ratio(s.Sixteen.PerSecond, s.One.PerSecond), enqueueTexts[limit])}
}

// atFloor is how far above the floor a median may be to be called the same.
const atFloor = 1.5

func judgeWake(s Seen) Verdict {
	v := Verdict{About: "wake"}
	times := ratio(float64(s.Wake.P50), float64(s.Floor.P50))
	switch {
	case !s.heard():
		v.Limit = Pooler
		v.Text = fmt.Sprintf("A handler begins %s after the commit (median): without notifications a worker looks each second.", span(s.Wake.P50))
	case times <= atFloor:
		v.Limit = None
		v.Text = fmt.Sprintf("A handler begins %s after the commit (median), %.1f times the floor by hand-written SQL: what is left is a notification and a durable claim.", span(s.Wake.P50), times)
	default:
		v.Limit = CPU
		v.Text = fmt.Sprintf("A handler begins %s after the commit (median), %.1f times the floor by hand-written SQL: the rest is Fencepost's own work, or somebody else's who takes the processors, here or on the server.", span(s.Wake.P50), times)
	}
	return v
}

var drainTexts = map[Limit]string{
	Disk:    "The server waits for its disk.",
	Standby: "The server waits for its synchronous standby.",
	Bell:    "The server waits for the lock of notifications: others in this database ring at the same time.",
	Locks:   "The server waits for locks.",
	CPU:     "The server's processors limit it.",
	Client:  "The server waits for this program, whose processors limit it.",
	Network: "The way to the server limits it: come nearer.",
}

func judgeDrain(s Seen) Verdict {
	limit := limitOf(s, s.DrainWaits)
	// Each claim of at most 500 is one round trip.
	if trips := s.Drain.PerSecond / drainSlots; limit == Client && trips*s.RoundTrip.P50.Seconds() >= 0.5 {
		limit = Network
	}
	return Verdict{"drain", limit, fmt.Sprintf("A worker ends %s jobs a second that do nothing. %s", count(s.Drain.PerSecond), drainTexts[limit])}
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// count writes a number of things as people do.
func count(n float64) string {
	if n < 10 {
		return fmt.Sprintf("%.1f", n)
	}
	digits := fmt.Sprintf("%.0f", n)
	var groups []string
	for len(digits) > 3 {
		groups = append([]string{digits[len(digits)-3:]}, groups...)
		digits = digits[:len(digits)-3]
	}
	return strings.Join(append([]string{digits}, groups...), ",")
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// span writes a time in milliseconds, to three digits or so.
func span(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 1:
		return fmt.Sprintf("%.3f ms", ms)
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	default:
		return fmt.Sprintf("%.0f ms", ms)
	}
}

package bench

import (
	"strings"
	"testing"
	"time"
)

// healthy is a direct way to a durable server on a fast network.
func healthy() Seen {
	times := func(d time.Duration) Times { return Times{P50: d, P99: 2 * d, N: 100} }
	return Seen{
		Server:       Server{Version: "18.1", SynchronousCommit: "on", Fsync: true},
		RoundTrip:    times(100 * time.Microsecond),
		Commit:       times(time.Millisecond),
		Commits:      Rate{1000, 3000},
		Notify:       times(1100 * time.Microsecond),
		Floor:        times(2 * time.Millisecond),
		Wake:         times(2200 * time.Microsecond),
		One:          Rate{900, 2700},
		Sixteen:      Rate{4500, 13500},
		Bulk:         Rate{50000, 100000},
		Drain:        Rate{20000, 100000},
		CommitWaits:  Waits{Disk: 80, CPU: 10, Idle: 10},
		SixteenWaits: Waits{Disk: 300, CPU: 200},
		DrainWaits:   Waits{CPU: 70, Idle: 20, Disk: 10},
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Seen)
		about  string // "server": may be there or not
		limit  Limit  // "": no such verdict
		words  string
	}{
		"nothing to say of the server": {func(*Seen) {}, "server", "", ""},
		"the disk":                     {func(*Seen) {}, "commit", Disk, "One connection commits 1,000 times a second: a commit takes 1.00 ms (median), of which 0.100 ms"},
		"the network":                  {func(s *Seen) { s.RoundTrip.P50 = 500 * time.Microsecond }, "commit", Network, "come nearer"},
		"a standby":                    {func(s *Seen) { s.CommitWaits = Waits{Standby: 50, Disk: 40} }, "commit", Standby, "synchronous standby"},
		"the server's work":            {func(s *Seen) { s.CommitWaits = Waits{CPU: 50, Disk: 40} }, "commit", CPU, "not its disk"},
		"no session is seen":           {func(s *Seen) { s.CommitWaits = Waits{} }, "commit", Disk, ""},
		"nor that of a standby":        {func(s *Seen) { s.CommitWaits, s.Server.Standbys = Waits{}, "*" }, "commit", Standby, ""},
		"which is not waited for": {func(s *Seen) {
			s.CommitWaits, s.Server.Standbys, s.Server.SynchronousCommit = Waits{}, "*", "local"
		}, "commit", Disk, ""},
		"nor a disk that is not waited for": {func(s *Seen) { s.CommitWaits, s.Server.Fsync = Waits{}, false }, "commit", CPU, ""},

		"asynchronous":                 {func(s *Seen) { s.Server.SynchronousCommit = "off" }, "server", Unsafe, "synchronous_commit is off"},
		"no fsync":                     {func(s *Seen) { s.Server.Fsync = false }, "server", Unsafe, "fsync is off"},
		"a pooler":                     {func(s *Seen) { s.Server.Pooled = true; s.Notify = Times{} }, "server", Pooler, "carries no notifications"},
		"a pooler with another way":    {func(s *Seen) { s.Server.Pooled = true }, "server", Pooler, "get through"},
		"deaf for an unknown reason":   {func(s *Seen) { s.Notify = Times{} }, "server", Pooler, "fencepost doctor"},
		"producers wait for the disk":  {func(*Seen) {}, "enqueue", Disk, "16 clients enqueue 4,500 jobs a second, 5.0 times as many as one"},
		"producers wait for the bell":  {func(s *Seen) { s.SixteenWaits = Waits{Bell: 9, Disk: 1} }, "enqueue", Bell, "one by one"},
		"producers wait for the CPU":   {func(s *Seen) { s.SixteenWaits = Waits{CPU: 9, Disk: 1} }, "enqueue", CPU, ""},
		"at the floor":                 {func(*Seen) {}, "wake", None, "2.20 ms after the commit (median), 1.1 times the floor"},
		"above the floor":              {func(s *Seen) { s.Wake.P50 = 4 * time.Millisecond }, "wake", CPU, "2.0 times the floor"},
		"nobody hears":                 {func(s *Seen) { s.Notify, s.Floor = Times{}, Times{}; s.Wake.P50 = 510 * time.Millisecond }, "wake", Pooler, "510 ms"},
		"a drain takes the CPU":        {func(*Seen) {}, "drain", CPU, "20,000 jobs a second"},
		"a drain waits for the client": {func(s *Seen) { s.DrainWaits = Waits{Idle: 90, CPU: 10} }, "drain", Client, "this program"},
		"a drain waits for the network": {func(s *Seen) {
			s.DrainWaits, s.RoundTrip.P50 = Waits{Idle: 90, CPU: 10}, 20*time.Millisecond
		}, "drain", Network, "come nearer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := healthy()
			c.change(&s)
			var found []Verdict
			for _, v := range Judge(s) {
				if v.About == c.about {
					found = append(found, v)
				}
			}
			if c.limit == "" {
				if len(found) > 0 {
					t.Errorf("%v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Limit != c.limit || !strings.Contains(found[0].Text, c.words) {
				t.Errorf("%+v; want %s, %q", found, c.limit, c.words)
			}
		})
	}
}

// Every limit that may be found has words.
func TestNoVerdictIsEmpty(t *testing.T) {
	t.Parallel()
	for _, w := range []Waits{{Disk: 1}, {Standby: 1}, {Bell: 1}, {Lock: 1}, {CPU: 1}, {Idle: 1}, {}} {
		s := healthy()
		s.CommitWaits, s.SixteenWaits, s.DrainWaits = w, w, w
		for _, v := range Judge(s) {
			if !strings.HasSuffix(v.Text, ".") || strings.HasSuffix(v.Text, " ") {
				t.Errorf("%+v: %+v", w, v)
			}
		}
	}
	for _, v := range Judge(Seen{}) { // nothing could be measured
		if v.Text == "" {
			t.Errorf("%+v", v)
		}
	}
}

func TestWaitsOfPostgreSQL(t *testing.T) {
	t.Parallel()
	for event, want := range map[[2]string]Limit{
		{"", ""}:                  CPU,
		{"IO", "WALSync"}:         Disk,
		{"IO", "WalSync"}:         Disk,
		{"LWLock", "WALWrite"}:    Disk,
		{"IPC", "SyncRep"}:        Standby,
		{"Lock", "object"}:        Bell,
		{"Lock", "transactionid"}: Locks,
		{"LWLock", "ProcArray"}:   Locks,
		{"Client", "ClientRead"}:  Client,
		{"Timeout", "SpinDelay"}:  CPU,
	} {
		var w Waits
		w.add(event[0], event[1], 1)
		if got := w.most(); got != want {
			t.Errorf("%v: %q; want %q", event, got, want)
		}
	}
}

package fencepost

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/claim"
)

// Each line is a time, what happens, and what comes of it: a look is sent
// ("dead" are the workers that it takes for dead) and answered at once with
// those that are silent, as WORKER/KEY, moved ones with a star; "recheck" is
// when it is to be repeated.
func TestSuspects(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, script string }{
		{"silent at one look and at another after the grace", `
			0s    look a/1    -> recheck 2s
			2s    look a/1    -> dead a/1 recheck 2s
			4s    look        -> dead a/1
			6s    look        ->
		`},
		{"not before the grace", `
			0s     look a/1   -> recheck 2s
			1.999s look a/1   -> recheck 1ms
			2s     look a/1   -> dead a/1 recheck 2s
		`},
		{"it has come back in between, and broken again", `
			0s    look a/1    -> recheck 2s
			1s    look        ->
			2s    look a/1    -> recheck 2s
			4s    look a/1    -> dead a/1 recheck 2s
		`},
		{"under another key it is another life", `
			0s    look a/1    -> recheck 2s
			2s    look a/2    -> dead a/1 recheck 2s
			3s    look a/2    -> recheck 1s
			4s    look a/2    -> dead a/2 recheck 2s
		`},
		{"each worker has its own time, and the earliest is the next look", `
			0s    look a/1     -> recheck 2s
			1s    look a/1 b/2 -> recheck 1s
			2s    look a/1 b/2 -> dead a/1 recheck 1s
			3s    look b/2     -> dead a/1 b/2 recheck 2s
		`},
		{"one that has not come back since the server was started gets longer", `
			0s    look a/1*    -> recheck 10s
			9.9s  look a/1*    -> recheck 100ms
			10s   look a/1*    -> dead a/1* recheck 2s
		`},
		{"after our own connection was lost everybody gets longer, for a minute", `
			0s    look a/1     -> recheck 2s
			1s    redial       ->
			3s    look a/1     -> recheck 10s
			12.9s look a/1     -> recheck 100ms
			13s   look a/1     -> dead a/1 recheck 2s
			20s   look         -> dead a/1
			60.9s look b/2     -> recheck 10s
			62s   look b/2     -> recheck 900ms
			62.9s look b/2     -> dead b/2 recheck 2s
		`},
		{"what was seen before our connection was lost does not count", `
			0s    look a/1     -> recheck 2s
			60s   redial       ->
			200s  look a/1     -> recheck 2s
			202s  look a/1     -> dead a/1 recheck 2s
		`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var s suspects
			start := time.Now()
			for line := range strings.Lines(test.script) {
				event, want, ok := strings.Cut(line, "->")
				if !ok {
					continue
				}
				words := strings.Fields(event)
				after, err := time.ParseDuration(words[0])
				if err != nil {
					t.Fatal(err)
				}
				now := start.Add(after)
				var got []string
				if words[1] == "redial" {
					s.redial(now)
				} else {
					for _, d := range s.dead(now) {
						got = append(got, fmt.Sprintf("%s/%d%s", d.Worker, d.Key, map[bool]string{true: "*"}[d.Moved]))
					}
					if slices.Sort(got); len(got) > 0 {
						got = slices.Insert(got, 0, "dead")
					}
					var silent []claim.Suspect
					for _, word := range words[2:] {
						var d claim.Suspect
						word, d.Moved = strings.CutSuffix(word, "*")
						if _, err := fmt.Sscanf(strings.Replace(word, "/", " ", 1), "%s %d", &d.Worker, &d.Key); err != nil {
							t.Fatal(word, err)
						}
						silent = append(silent, d)
					}
					if in := s.saw(now, silent); in > 0 {
						got = append(got, "recheck", in.String())
					}
				}
				if got := strings.Join(got, " "); got != strings.TrimSpace(want) {
					t.Fatalf("%s: got %q", strings.TrimSpace(line), got)
				}
			}
		})
	}
}

// The first two look every 2 s, each other 2 s later than the one before it,
// none more rarely than it polls: ten thousand processes make two looks a
// second, and the ticks that they make anyway.
func TestRanksBoundTheLooks(t *testing.T) {
	t.Parallel()
	for rank, want := range []time.Duration{2, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 30} {
		if got := watchEvery(rank, 30*time.Second); got != want*time.Second {
			t.Errorf("rank %d looks every %v, want %v", rank, got, want*time.Second)
		}
	}
	if got := watchEvery(100_000, 24*time.Hour); got != 24*time.Hour {
		t.Errorf("rank 100,000 looks every %v", got)
	}
	if got := watchEvery(0, time.Second); got != time.Second {
		t.Errorf("with a poll interval of a second rank 0 looks every %v", got)
	}
	rate := 0.0
	for rank := range 10_000 {
		rate += 1/watchEvery(rank, 30*time.Second).Seconds() - 1.0/30
	}
	if rate > 2 {
		t.Errorf("10,000 processes make %.1f looks a second", rate)
	}
}

package check

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-go/fencepost/lab/torture/internal/history"
	"github.com/fencepost-go/fencepost/lab/torture/internal/witness"
)

// BenchmarkCheck says how long a record of 200,000 events takes.
func BenchmarkCheck(b *testing.B) {
	one := played(1, time.Minute, 15, nil).input()
	in := repeated(one, 200_000/len(one.Events)+1)
	for b.Loop() {
		if got := violated(Check(in)); got != nil {
			b.Fatalf("violates %v", got)
		}
	}
	b.ReportMetric(float64(len(in.Events)), "events")
	b.ReportMetric(float64(len(in.Lines)), "lines")
}

// repeated is the same run n times, one after the other, each with jobs and
// processes of its own.
func repeated(one Input, n int) Input {
	all := Input{Offset: one.Offset, Limits: one.Limits}
	length := one.Events[len(one.Events)-1].At - one.Events[0].At + 100*second
	for i := range int64(n) {
		id, fence, suffix := i*1_000_000, i*length/1000, fmt.Sprintf("x%d.1", i)
		moved := func(f int64) int64 {
			if f < 1e9 {
				return f // of a job that nobody has claimed
			}
			return f + fence
		}
		ref := func(r history.Ref) history.Ref {
			if r.Job != 0 {
				r.Job += id
			}
			r.Fence = moved(r.Fence)
			if r.Token != "" {
				r.Token += suffix
			}
			return r
		}
		name := func(s string) string {
			if s != "" {
				s += suffix
			}
			return s
		}
		for _, e := range one.Events {
			e.At += i * length
			e.Ref, e.Refs = ref(e.Ref), slices.Clone(e.Refs)
			for k := range e.Refs {
				e.Refs[k] = ref(e.Refs[k])
			}
			e.Proc, e.Target, e.Worker = name(e.Proc), name(e.Target), name(e.Worker)
			all.Events = append(all.Events, e)
		}
		later := func(t time.Time) time.Time {
			if t.IsZero() {
				return t
			}
			return t.Add(time.Duration(i * length))
		}
		line := func(l witness.Line) witness.Line {
			l.At, l.CreatedAt, l.ID, l.Token = later(l.At), later(l.CreatedAt), l.ID+id, name(l.Token)
			for _, f := range []*int64{&l.Before.Fence, &l.After.Fence} {
				*f = moved(*f)
			}
			l.Before.RunAt, l.After.RunAt = later(l.Before.RunAt), later(l.After.RunAt)
			l.Before.Lease, l.After.Lease = later(l.Before.Lease), later(l.After.Lease)
			l.Before.Worker, l.After.Worker = name(l.Before.Worker), name(l.After.Worker)
			return l
		}
		for _, l := range one.Lines {
			all.Lines = append(all.Lines, line(l))
		}
		for _, l := range one.Lost {
			all.Lost = append(all.Lost, line(l))
		}
		for _, j := range one.Final {
			j.ID, j.Token, j.CreatedAt = j.ID+id, name(j.Token), later(j.CreatedAt)
			all.Final = append(all.Final, j)
		}
		for _, o := range one.Orders {
			o.Token = name(o.Token)
			all.Orders = append(all.Orders, o)
		}
		for _, e := range one.Effects {
			e.Token, e.Job, e.Fence = name(e.Token), e.Job+id, moved(e.Fence)
			all.Effects = append(all.Effects, e)
		}
	}
	return all
}

package play

import (
	"slices"
	"testing"

	"github.com/fencepost-go/fencepost/lab/bench/internal/suite"
)

func TestWhoTakesPart(t *testing.T) {
	t.Parallel()
	s := suite.Suite{Peers: []string{"river", "graphile", "floor"}}
	for _, c := range []struct {
		how  How
		want []string
	}{
		{How{}, []string{"fencepost", "river", "graphile", "floor"}},
		{How{Quick: true}, []string{"fencepost", "river", "floor"}},
		{How{Full: true}, []string{"fencepost", "river", "graphile", "pgboss", "gue", "floor"}},
		{How{Quick: true, Full: true, Peers: []string{"gue"}}, []string{"gue"}},
	} {
		if got := c.how.peers(s); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, not %v", c.how, got, c.want)
		}
	}
	if !slices.Equal(s.Peers, []string{"river", "graphile", "floor"}) {
		t.Errorf("the suite's own list was changed: %v", s.Peers)
	}
}

// What was played with other flags is not what is asked for now.
func TestFlagsThatDecide(t *testing.T) {
	t.Parallel()
	seen := make(map[string]How)
	for _, how := range []How{
		{}, {Quick: true}, {Full: true}, {Rounds: 5}, {Major: 15}, {Peers: []string{"gue"}}, {Peers: []string{"gue", "river"}},
	} {
		if other, ok := seen[how.flags()]; ok {
			t.Errorf("%+v is taken for %+v", how, other)
		}
		seen[how.flags()] = how
	}
	if (How{}).flags() != (How{Suites: []string{"drain"}, JSON: true, Out: "elsewhere", Resume: true}).flags() {
		t.Error("which suites are asked for does not change what each of them measures")
	}
}

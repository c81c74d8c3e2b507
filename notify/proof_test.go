package notify

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestProof(t *testing.T) {
	const limit = 2 * time.Second
	for _, test := range []struct {
		name string
		do   func(p *proof, listen func())
		want bool // the connection is given up
	}{
		{"heard in time", func(p *proof, listen func()) {
			listen()
			token := p.expect()
			p.await(token)
			time.Sleep(limit - 1)
			p.heard(token)
		}, false},
		{"not heard", func(p *proof, listen func()) {
			listen()
			p.await(p.expect())
		}, true},
		{"heard before the wait for it begins", func(p *proof, listen func()) {
			listen()
			token := p.expect()
			p.heard(token)
			p.await(token)
		}, false},
		{"rung, but perhaps not committed: not awaited", func(p *proof, listen func()) {
			listen()
			p.expect()
		}, false},
		{"a later bell answers for an earlier one", func(p *proof, listen func()) {
			listen()
			first, second := p.expect(), p.expect()
			p.await(first)
			p.await(second)
			p.heard(second)
		}, false},
		{"an earlier bell does not answer for a later one", func(p *proof, listen func()) {
			listen()
			first, second := p.expect(), p.expect()
			p.await(first)
			p.await(second)
			p.heard(first)
		}, true},
		{"more bells do not lengthen the wait for the first", func(p *proof, listen func()) {
			listen()
			for range 10 {
				p.await(p.expect())
				time.Sleep(limit / 4)
			}
		}, true},
		{"expected before anybody listened: nothing to judge", func(p *proof, listen func()) {
			token := p.expect()
			listen()
			p.await(token)
		}, false},
		{"awaited when nobody listens", func(p *proof, listen func()) {
			p.await(p.expect())
			listen()
		}, false},
		{"expected on an earlier connection", func(p *proof, listen func()) {
			listen()
			token := p.expect()
			p.over()
			listen()
			p.await(token)
		}, false},
		{"the connection ended by itself meanwhile", func(p *proof, listen func()) {
			listen()
			p.await(p.expect())
			p.over()
		}, false},
		{"tokens of strangers prove nothing", func(p *proof, listen func()) {
			listen()
			p.await(p.expect())
			for _, forged := range []string{"", "2", "0", "-1", "x", "9223372036854775808"} {
				if p.heard(forged) {
					t.Errorf("took %q for a token", forged)
				}
			}
			p.await("2")
			p.await("")
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &proof{limit: limit}
				given := make(chan error, 100)
				test.do(p, func() { p.listening(func(cause error) { given <- cause }) })
				time.Sleep(2 * limit)
				synctest.Wait()
				if got := len(given) > 0; got != test.want {
					t.Errorf("given up: %v, want %v", got, test.want)
				}
			})
		})
	}
}

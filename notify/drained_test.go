package notify

import (
	"strings"
	"testing"
	"time"
)

func TestParseDrained(t *testing.T) {
	for rest, want := range map[string]Drained{
		"5:5::00000000000000ff:000000000000000a:0:default":                             {Queue: "default", Kinds: 255, Worker: 10},
		"5:9:6,8:ffffffffffffffff:0000000000000001:1700000000123456:a:b::c":            {Queue: "a:b::c", Kinds: 1<<64 - 1, Worker: 1, Next: time.UnixMicro(1700000000123456)},
		"4294967296123:4294967296124:4294967296123:00ff:0a:946684800000000:Käse \"x\"": {Queue: `Käse "x"`, Kinds: 255, Worker: 10, Next: time.UnixMicro(firstTime)},
	} {
		got, err := parseDrained(rest)
		if err != nil || got.Queue != want.Queue || got.Kinds != want.Kinds || got.Worker != want.Worker || !got.Next.Equal(want.Next) {
			t.Errorf("parseDrained(%q) = %+v, %v; want %+v", rest, got, err, want)
		}
	}
	for _, rest := range []string{
		"", ":", "::::::", "5:5::ff:0a:0", "5:5::ff:0a:0:", "5:5:,:ff:0a:0:q", "5:5:x:ff:0a:0:q", "x:5::ff:0a:0:q", "5::6:ff:0a:0:q",
		"-5:5::ff:0a:0:q", "5:5::xx:0a:0:q", "5:5::ff::0:q", "5:5::ff:0a::q", "5:5::ff:0a:1:q", "5:5::ff:0a:-1:q", "5:5::ff:0a:9223372036854775808:q",
		"18446744073709551616:5::ff:0a:0:q", strings.Repeat("5:", 3000),
	} {
		if got, err := parseDrained(rest); err == nil {
			t.Errorf("parseDrained(%.80q) = %+v, want an error", rest, got)
		} else if len(err.Error()) > 250 {
			t.Errorf("parseDrained(%.80q): an error of %d bytes", rest, len(err.Error()))
		}
	}
}

// Only what was committed for the look counts: whatever else has rung, its jobs
// may still be there.
func TestDrainedSeesWhatWasCommitted(t *testing.T) {
	d, err := parseDrained("10:20:10,15:ff:0a:0:q")
	if err != nil {
		t.Fatal(err)
	}
	for xid, want := range map[uint64]bool{
		0: false, // nobody knows which
		1: true, 9: true,
		10: false, // under way
		11: true, 14: true,
		15: false, 16: true, 19: true,
		20: false, // began later
		21: false, 4294967296 + 9: false,
	} {
		if got := d.Sees(xid); got != want {
			t.Errorf("sees %d: %v, want %v", xid, got, want)
		}
	}
}

func FuzzParseDrained(f *testing.F) {
	f.Add("10:20:10,15:00000000000000ff:000000000000000a:0:q", uint64(15))
	f.Fuzz(func(t *testing.T, rest string, xid uint64) {
		d, err := parseDrained(rest)
		if err == nil && (d.Queue == "" || d.Sees(0) || xid >= d.max && xid >= d.min && d.Sees(xid)) {
			t.Errorf("%q read as %+v", rest, d)
		}
	})
}

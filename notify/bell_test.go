package notify

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParseBell(t *testing.T) {
	due := time.UnixMicro(1700000000123456)
	for payload, want := range map[string]Bell{
		"1:0:default":                {Queue: "default"}, // as schemas before version 3 ring
		"1:1:default":                {Queue: "default", Xid: 1},
		"1:4294967296123:default":    {Queue: "default", Xid: 4294967296123},
		"1:946684799999999:default":  {Queue: "default", Xid: 946684799999999},
		"1:946684800000000:default":  {Queue: "default", Due: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"1:1700000000123456:default": {Queue: "default", Due: due},
		"1:0:a:b::c":                 {Queue: "a:b::c"},
		"1:0:Käse \"quoted\" 'x'":    {Queue: "Käse \"quoted\" 'x'"},
		"1:9223372036854775807:far":  {Queue: "far", Due: time.UnixMicro(1<<63 - 1)},
	} {
		got, err := ParseBell(payload)
		if err != nil || got.Queue != want.Queue || !got.Due.Equal(want.Due) || got.Xid != want.Xid {
			t.Errorf("ParseBell(%q) = %v, %v; want %v", payload, got, err, want)
		}
	}
	for _, payload := range []string{
		"", ":", "::", "1", "1:", "1::", "1:0", "1:0:", "1::q", "1:-1:q", "1:x:q", "1:1.5:q",
		"recall:", "recall:host:1:abc", "recall:1:0:q", "quiet:1700000000123456:q",
		"drained:5:9:6,8:00000000000000ff:000000000000000a:0:q", // as programs see them that do not know them
		"1:9223372036854775808:q", "0:0:q", "2:0:q", "11:0:q", " 1:0:q", "0:q", "q", strings.Repeat("x", 8000),
	} {
		if got, err := ParseBell(payload); err == nil {
			t.Errorf("ParseBell(%.80q) = %v, want an error", payload, got)
		} else if len(err.Error()) > 200 {
			t.Errorf("ParseBell(%.80q): an error of %d bytes", payload, len(err.Error()))
		}
	}
}

// Programs of versions 1 and 2 took the number for a time whatever it is. To them
// a job whose bell names a transaction was due long ago.
func TestATransactionIsATimeInThePastToOldPrograms(t *testing.T) {
	const asLateAsCanBe = firstTime - 1
	if old := time.UnixMicro(asLateAsCanBe); !old.Before(time.Now().AddDate(-20, 0, 0)) {
		t.Errorf("they would wait until %v", old)
	}
}

func TestParseQuiet(t *testing.T) {
	until := time.UnixMicro(1700000000123456)
	for rest, want := range map[string]Quiet{
		"1700000000123456:default": {Queue: "default", Until: until},
		"1700000000123456:a:b::c":  {Queue: "a:b::c", Until: until},
	} {
		if got, err := parseQuiet(rest); err != nil || got.Queue != want.Queue || !got.Until.Equal(want.Until) {
			t.Errorf("parseQuiet(%q) = %v, %v; want %v", rest, got, err, want)
		}
	}
	for _, rest := range []string{"", ":", "1700000000123456", "1700000000123456:", "0:q", "-1:q", "1:q", "x:q", "9223372036854775808:q", strings.Repeat("x", 8000)} {
		if got, err := parseQuiet(rest); err == nil {
			t.Errorf("parseQuiet(%.80q) = %v, want an error", rest, got)
		} else if len(err.Error()) > 200 {
			t.Errorf("parseQuiet(%.80q): an error of %d bytes", rest, len(err.Error()))
		}
	}
}

func FuzzParseBell(f *testing.F) {
	f.Add("1:0:default")
	f.Add("1:1700000000123456:a:b")
	f.Fuzz(func(t *testing.T, payload string) {
		bell, err := ParseBell(payload)
		if err != nil {
			return
		}
		number := int64(bell.Xid)
		if !bell.Due.IsZero() {
			number = bell.Due.UnixMicro()
		}
		again, err := ParseBell(fmt.Sprintf("1:%d:%s", number, bell.Queue))
		if err != nil || again.Queue != bell.Queue || !again.Due.Equal(bell.Due) || again.Xid != bell.Xid {
			t.Errorf("%q read as %v, written and read again as %v, %v", payload, bell, again, err)
		}
	})
}

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
		"1:0:default":                {Queue: "default"},
		"1:1700000000123456:default": {Queue: "default", Due: due},
		"1:0:a:b::c":                 {Queue: "a:b::c"},
		"1:0:Käse \"quoted\" 'x'":    {Queue: "Käse \"quoted\" 'x'"},
		"1:9223372036854775807:far":  {Queue: "far", Due: time.UnixMicro(1<<63 - 1)},
	} {
		got, err := ParseBell(payload)
		if err != nil || got.Queue != want.Queue || !got.Due.Equal(want.Due) {
			t.Errorf("ParseBell(%q) = %v, %v; want %v", payload, got, err, want)
		}
	}
	for _, payload := range []string{
		"", ":", "::", "1", "1:", "1::", "1:0", "1:0:", "1::q", "1:-1:q", "1:x:q", "1:1.5:q",
		"recall:", "recall:host:1:abc", "recall:1:0:q", // as programs of version 1 see them
		"1:9223372036854775808:q", "0:0:q", "2:0:q", "11:0:q", " 1:0:q", "0:q", "q", strings.Repeat("x", 8000),
	} {
		if got, err := ParseBell(payload); err == nil {
			t.Errorf("ParseBell(%.80q) = %v, want an error", payload, got)
		} else if len(err.Error()) > 200 {
			t.Errorf("ParseBell(%.80q): an error of %d bytes", payload, len(err.Error()))
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
		micros := int64(0)
		if !bell.Due.IsZero() {
			micros = bell.Due.UnixMicro()
		}
		again, err := ParseBell(fmt.Sprintf("1:%d:%s", micros, bell.Queue))
		if err != nil || again.Queue != bell.Queue || !again.Due.Equal(bell.Due) {
			t.Errorf("%q read as %v, written and read again as %v, %v", payload, bell, again, err)
		}
	})
}

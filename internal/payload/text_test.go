package payload_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fencepost-go/fencepost/internal/payload"
)

func TestCleanText(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{
		{"", 0, ""},
		{"as it is", 8, "as it is"},
		{"a\x00b\x00", 10, "ab"},
		{"a\xffb\xc3", 100, "a\ufffdb\ufffd"},
		{"\xed\xa0\x80", 100, "\ufffd\ufffd\ufffd"},
		{`a lone \ud800 escape is text`, 100, `a lone \ud800 escape is text`},
		{"twelve bytes", 11, "tw… (cut)"},
		{"zwölf Zeichen", 12, "zw… (cut)"}, // not half an ö
		{"\x00\x00\x00\x00twelve bytes", 12, "twelve bytes"},
		{"äöü", 5, "äö"}, // no room for the mark
		{"äöü", 0, ""},
		{"äöü", -1, ""},
		{"twelve bytes", 9, "… (cut)"},
	} {
		if got := payload.CleanText(c.in, c.max); got != c.want {
			t.Errorf("CleanText(%q, %d) = %q, want %q", c.in, c.max, got, c.want)
		}
	}
}

func FuzzCleanText(f *testing.F) {
	f.Add("plain", 3)
	f.Add("a\x00b\xff\xed\xa0\x80ö", 20)
	f.Add(strings.Repeat("ü\x00", 50), 40)
	f.Fuzz(func(t *testing.T, s string, max int) {
		got := payload.CleanText(s, max)
		if !utf8.ValidString(got) || strings.ContainsRune(got, 0) || len(got) > 0 && len(got) > max {
			t.Errorf("CleanText(%q, %d) = %q", s, max, got)
		}
		whole := strings.ReplaceAll(strings.Join(strings.Split(string([]rune(s)), "\x00"), ""), "\x00", "")
		if len(whole) <= max && got != whole {
			t.Errorf("CleanText(%q, %d) = %q, want all of it: %q", s, max, got, whole)
		}
		if again := payload.CleanText(got, max); again != got {
			t.Errorf("cleaning %q again gives %q", got, again)
		}
	})
}

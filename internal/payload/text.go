package payload

import (
	"strings"
	"unicode/utf8"
)

// cutMark ends a text that was cut.
const cutMark = "… (cut)"

// CleanText returns s as PostgreSQL can store it in at most max bytes: without
// NUL, each byte of invalid UTF-8 replaced by U+FFFD. What is too long is cut
// between two characters and ends with a mark that says so, which counts into
// max (and is itself left out where it would not fit).
func CleanText(s string, max int) string {
	if len(s) <= max && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	var b strings.Builder
	keep := 0 // how much of b stays when the mark follows
	for _, r := range s {
		if r == 0 {
			continue
		}
		if b.Len()+utf8.RuneLen(r) > max {
			if len(cutMark) > max {
				return b.String()
			}
			return b.String()[:keep] + cutMark
		}
		b.WriteRune(r)
		if b.Len()+len(cutMark) <= max {
			keep = b.Len()
		}
	}
	return b.String()
}

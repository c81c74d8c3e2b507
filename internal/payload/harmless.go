package payload

import (
	"encoding/json"
	"unicode/utf8"
)

// harmless says whether one look at the bytes shows that nothing in raw is what
// Check refuses, which is so for nearly all that is ever enqueued. It may say
// no to what is fine, and then each token is looked at.
//
// Whoever adds a reason to refuse has to see to it that this says no.
func harmless(raw []byte) bool {
	ascii, levels, digits := true, 0, 0
	for i, b := range raw {
		switch {
		case b >= '0' && b <= '9' || b == '.':
			// Without an exponent no number is longer than it is written.
			if digits++; digits > MaxDigits {
				return false
			}
			continue
		case b == 'e' || b == 'E':
			if digits > 0 {
				return false // an exponent, or a text like 7e
			}
		case b == '{' || b == '[':
			if levels++; levels > MaxDepth {
				return false
			}
		case b == 'u':
			if i > 0 && raw[i-1] == '\\' {
				return false // \u0000, or half of a pair
			}
		case b >= utf8.RuneSelf:
			ascii = false
		}
		digits = 0
	}
	return (ascii || utf8.Valid(raw)) && json.Valid(raw)
}

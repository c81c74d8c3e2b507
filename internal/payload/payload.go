package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// MaxBytes is the largest document, as given and also with its numbers
	// written out: 1e999 takes five bytes here and a thousand in every claim.
	MaxBytes = 1 << 20
	// MaxDepth is how many arrays and objects may stand inside each other.
	MaxDepth = 1000
	// MaxDigits is how many digits a number may have when it is written out
	// without an exponent, before and after the decimal point together.
	// PostgreSQL would take 131,072 before and 16,383 after it.
	MaxDigits = 1000
)

// Error says what is wrong with a document and where.
type Error struct {
	Path   string // the value or key, as in $.customer.names[3]; cut when it is long
	Offset int    // how many bytes of the document come before the bad one
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s at %s (byte %d)", e.Reason, e.Path, e.Offset)
}

// Check says whether raw is one JSON document that PostgreSQL 14 to 18 store as
// jsonb, every digit of its numbers kept. Otherwise it returns an [*Error].
//
// It refuses: no document at all, invalid JSON, anything but white space after
// the document, invalid UTF-8, the escape \u0000 and halves of surrogate pairs
// in any string or key, and what exceeds [MaxBytes], [MaxDepth] or [MaxDigits].
//
// It accepts what jsonb only writes differently: white space, the order of the
// keys of an object, the notation of a number (1e2 becomes 100, -0 becomes 0),
// and repeated keys, of which the last one counts, as in encoding/json.
func Check(raw []byte) error {
	if len(raw) > MaxBytes {
		return &Error{"$", MaxBytes, fmt.Sprintf("%d bytes, more than %d", len(raw), MaxBytes)}
	}
	if harmless(raw) {
		return nil
	}
	return checkTokens(raw)
}

// checkTokens looks at one token after the other.
func checkTokens(raw []byte) error {
	c := checker{raw: raw}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	for {
		before := int(dec.InputOffset())
		token, err := dec.Token()
		if err != nil {
			return c.syntax()
		}
		after := int(dec.InputOffset())
		if err := c.take(token, before, after); err != nil {
			return err
		}
		if len(c.open) == 0 {
			rest := bytes.TrimLeft(raw[after:], " \t\r\n")
			if len(rest) > 0 {
				return c.bad(len(raw)-len(rest), "data after the end of the document")
			}
			return nil
		}
	}
}

// A level is an array or object that is still open.
type level struct {
	array bool
	index int    // array: how many items are complete
	key   string // object: the key whose value comes next or is being read
	keyed bool   // object: key is set
}

type checker struct {
	raw  []byte
	open []level
	// expanded is how many bytes the document grows by when its numbers are
	// written out.
	expanded int
}

// take checks one token, which ends at byte end and starts somewhere after
// begin, behind white space and a comma or colon.
func (c *checker) take(token json.Token, begin, end int) error {
	switch token := token.(type) {
	case json.Delim:
		if token == '[' || token == '{' {
			c.open = append(c.open, level{array: token == '['})
			if len(c.open) > MaxDepth {
				return c.bad(end-1, fmt.Sprintf("nested deeper than %d", MaxDepth))
			}
			return nil
		}
		c.open = c.open[:len(c.open)-1]

	case string:
		top := c.top()
		isKey := top != nil && !top.array && !top.keyed
		if isKey {
			top.key, top.keyed = token, true
		}
		// The decoder has replaced what it could not read, so look at the source.
		begin += bytes.IndexByte(c.raw[begin:end], '"')
		if at, reason := badText(c.raw[begin:end]); reason != "" {
			return c.bad(begin+at, reason)
		}
		if isKey {
			return nil
		}

	case json.Number:
		begin = end - len(token)
		digits, ok := digits(string(token))
		if !ok {
			return c.bad(begin, fmt.Sprintf("a number of more than %d digits when written out", MaxDigits))
		}
		c.expanded += max(0, digits-len(token))
		if len(c.raw)+c.expanded > MaxBytes {
			return c.bad(begin, fmt.Sprintf("more than %d bytes with the numbers written out", MaxBytes))
		}
	}
	// A value is complete: the next one has its own key or index.
	if top := c.top(); top != nil {
		top.index++
		top.keyed = false
	}
	return nil
}

func (c *checker) top() *level {
	if len(c.open) == 0 {
		return nil
	}
	return &c.open[len(c.open)-1]
}

// syntax explains why the decoder stopped. Its tokens do not say at which byte;
// the check of a whole document does.
func (c *checker) syntax() error {
	if len(bytes.TrimLeft(c.raw, " \t\r\n")) == 0 {
		return c.bad(0, "empty, not even null")
	}
	at, reason := len(c.raw), "invalid JSON"
	var syntax *json.SyntaxError
	if errors.As(json.Unmarshal(c.raw, new(json.RawMessage)), &syntax) {
		reason += ": " + syntax.Error()
		if at = int(syntax.Offset); syntax.Error() != "unexpected end of JSON input" {
			at-- // the offset counts the bad byte
		}
	}
	return c.bad(at, reason)
}

func (c *checker) bad(offset int, reason string) error {
	const maxPath, maxKey = 256, 64
	path := "$"
	for _, l := range c.open {
		switch {
		case len(path) > maxPath:
		case l.array:
			path += "[" + strconv.Itoa(l.index) + "]"
		case l.keyed && plain(l.key):
			path += "." + CleanText(l.key, maxKey)
		case l.keyed:
			path += "[" + CleanText(strconv.Quote(l.key), maxKey) + "]"
		}
	}
	return &Error{CleanText(path, maxPath), offset, reason}
}

// plain says whether a key can stand in a path as it is.
func plain(key string) bool {
	for _, r := range key {
		if r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') {
			return false
		}
	}
	return key != ""
}

// badText looks for the first thing in a string literal of valid JSON that
// PostgreSQL does not store, and returns an empty reason if there is none.
func badText(literal []byte) (at int, reason string) {
	escape := func(i int) rune { // the value of \uXXXX at i, or -1
		if i+6 > len(literal) || literal[i] != '\\' || literal[i+1] != 'u' {
			return -1
		}
		value, _ := strconv.ParseUint(string(literal[i+2:i+6]), 16, 16)
		return rune(value)
	}
	for i := 0; i < len(literal); {
		if literal[i] != '\\' {
			r, size := utf8.DecodeRune(literal[i:])
			if r == utf8.RuneError && size == 1 {
				return i, "invalid UTF-8"
			}
			i += size
			continue
		}
		switch r := escape(i); {
		case r < 0:
			i += 2
		case r == 0:
			return i, `\u0000, which no text in PostgreSQL can hold,`
		case !utf16.IsSurrogate(r):
			i += 6
		case utf16.DecodeRune(r, escape(i+6)) == utf8.RuneError:
			return i, "half of a surrogate pair"
		default:
			i += 12
		}
	}
	return 0, ""
}

// digits counts the digits of a valid JSON number written out without an
// exponent. It is not ok if there are more than [MaxDigits].
func digits(number string) (count int, ok bool) {
	mantissa, power := strings.TrimPrefix(number, "-"), "0"
	if i := strings.IndexAny(mantissa, "eE"); i >= 0 {
		mantissa, power = mantissa[:i], mantissa[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent, err := strconv.Atoi(power)
	if err != nil || exponent > MaxDigits || exponent < -MaxDigits {
		return 0, false
	}
	count = max(1, len(whole)+exponent) + max(0, len(fraction)-exponent)
	return count, count <= MaxDigits
}

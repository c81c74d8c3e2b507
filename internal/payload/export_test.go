package payload

// The two halves of Check.
var (
	Harmless    = harmless
	CheckTokens = checkTokens
)

package usage

// What the tests outside look at.
var (
	EncodeDay = encodeDay
	DecodeDay = decodeDay
)

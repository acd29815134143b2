package dedupe

import (
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// An answer is opaque bytes with one byte in front that says how they are kept.
const (
	answerPlain = 0
	answerZstd  = 1

	// compressFrom is the size from which compression pays for itself.
	compressFrom = 512
	// maxAnswer bounds what a stored answer may unpack to; it is far above any
	// result limit and only stops a damaged frame from asking for more.
	maxAnswer = 256 << 20
)

// Both coders are safe for concurrent EncodeAll and DecodeAll, and start no
// goroutines for them. The options are constant, so the errors cannot occur.
var (
	answerEncoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	answerDecoder, _ = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxAnswer))
)

func encodeAnswer(answer []byte) []byte {
	if len(answer) >= compressFrom {
		packed := answerEncoder.EncodeAll(answer, []byte{answerZstd})
		if len(packed) <= len(answer) {
			return packed
		}
	}
	return append([]byte{answerPlain}, answer...)
}

func decodeAnswer(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("decode answer: %w", ErrUnreadable)
	}
	switch data[0] {
	case answerPlain:
		return data[1:], nil
	case answerZstd:
		out, err := answerDecoder.DecodeAll(data[1:], nil)
		if err != nil {
			return nil, fmt.Errorf("decode answer: %w", ErrUnreadable)
		}
		return out, nil
	default:
		return nil, fmt.Errorf("decode answer of kind %d: %w", data[0], ErrUnreadable)
	}
}

package usage_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/usage"
)

func sample() usage.Cells {
	return usage.Cells{
		{Connection: "crm", Action: "add", KeyID: "k1"}:       counts{usage.Claimed: 300, usage.Writes: 299, usage.Unreadable: 1}.full(),
		{Connection: "billing", Action: "create"}:             counts{usage.Held: 1}.full(),
		{Connection: "billing", Action: "create", KeyID: "k"}: counts{usage.Replays: 1 << 40}.full(),
	}
}

// The form is stored for as long as audit rows are: a change of it is a new
// version.
func TestStoredForm(t *testing.T) {
	const form = "01" + "03" +
		"0762696c6c696e67" + "06637265617465" + "00" + "01" + "0501" +
		"0762696c6c696e67" + "06637265617465" + "016b" + "01" + "08808080808020" +
		"0363726d" + "03616464" + "026b31" + "03" + "00ac02" + "01ab02" + "1001"
	require.Equal(t, form, hex.EncodeToString(usage.EncodeDay(sample())))
	raw, err := hex.DecodeString(form)
	require.NoError(t, err)
	cells, err := usage.DecodeDay(raw)
	require.NoError(t, err)
	require.Equal(t, sample(), cells)
	require.Equal(t, []byte{1, 0}, usage.EncodeDay(nil))
}

// Numbers of columns are stored and can never be given to another one.
func TestColumnNumbersAreFixed(t *testing.T) {
	names := make([]string, 0, len(usage.Counts{}))
	for i := range len(usage.Counts{}) {
		names = append(names, usage.Column(i).String())
	}
	require.Equal(t, "claimed writes refusals not_done lapsed held resolved recovered replays in_flight held_repeats "+
		"twin_refused key_reused denied rate_limited duplicates_prevented unreadable", strings.Join(names, " "))
}

func TestDecodingForgivesNothing(t *testing.T) {
	for name, bad := range map[string]string{
		"nothing":          "",
		"other version":    "0200",
		"no cells":         "01",
		"cut":              "01010163",
		"trailing":         "010000",
		"unknown column":   "0101" + "000000" + "01" + "1101",
		"column twice":     "0101" + "000000" + "02" + "0101" + "0101",
		"columns unsorted": "0101" + "000000" + "02" + "0201" + "0101",
		"zero":             "0101" + "000000" + "01" + "0100",
		"padded number":    "0101" + "000000" + "01" + "018100",
		"too large":        "0101" + "000000" + "01" + "01ffffffffffffffffff01",
		"cell twice":       "0102" + "000000" + "01" + "0101" + "000000" + "01" + "0101",
		"cells unsorted":   "0102" + "016200" + "00" + "01" + "0101" + "016100" + "00" + "01" + "0101",
		"too many cells":   "01d20f",
		"long name":        "0101" + "ffffffff0f",
	} {
		raw, err := hex.DecodeString(bad)
		require.NoError(t, err)
		_, err = usage.DecodeDay(raw)
		require.ErrorIs(t, err, usage.ErrUnreadable, name)
		require.ErrorIs(t, err, ledger.ErrCorrupt, name)
	}
}

func FuzzDecodeDay(f *testing.F) {
	f.Add(usage.EncodeDay(sample()))
	f.Add(usage.EncodeDay(nil))
	f.Add([]byte("\x01\x01\x01c\x01a\x01k\x02\x00\x05\x01\x7f"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cells, err := usage.DecodeDay(data)
		if err != nil {
			return
		}
		require.Equal(t, data, usage.EncodeDay(cells), "what is read has one spelling")
	})
}

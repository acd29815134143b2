package strictjson_test

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/strictjson"
)

const inexact = "this number cannot be represented exactly; send it as a string"

func TestNumbersThatAreExact(t *testing.T) {
	for _, n := range []string{
		"0", "-0", "0.0", "-0.000", "0e0", "0e5", "0E-5", "0e999999999999999999999999", "-0.0e-99999999999999999999",
		"1", "-1", "1.0", "1.00", "1e0", "1E0", "1e+0", "1e-0", "1e2", "1E+02", "100e-2", "0.1", "1e-1", "0.01e1", "10e-2",
		"1.10", "0.10", "19.99", "1234567.89", "0.30", "123456789012345", "0.000000000000001",
		"9007199254740991", "9007199254740992", "9007199254740994", "-9007199254740991", "9007199254740992.0", "90071992547409920e-1",
		"0.30000000000000004", // 0.1+0.2, as every JSON writer prints it
		"1e21", "1e22", "1e23", "1e308", "1.7976931348623157e308", "-1.7976931348623157e+308",
		"5e-324", "-5e-324", "1e-323", "2.2250738585072014e-308", "2.225073858507201e-308", "1e-307", "1e-308",
		"295147905179352830000", "18446744073709552000", "9223372036854776000",
		"1" + strings.Repeat("0", 308), "0." + strings.Repeat("0", 323) + "5", // written out
		"1e" + strings.Repeat("0", 300) + "1", "5" + strings.Repeat("0", 40) + "e-40", "0." + strings.Repeat("0", 40) + "7e41",
	} {
		require.NoError(t, strictjson.Check([]byte(n)), n)
		require.NoError(t, strictjson.Check([]byte(`{"a":[`+n+`,`+n+`]}`)), n)
	}
}

func TestNumbersThatAreNot(t *testing.T) {
	for _, n := range []string{
		"9007199254740993", "-9007199254740993", "9007199254740993.0", "90071992547409930e-1", "900719925474099.3e1",
		"15947634569000323", "18446744073709551615", "18446744073709551616", "9223372036854775807", "9223372036854775808",
		"295147905179352825856", // exactly a double, but not what it prints
		"0.10000000000000000555", "0.10000000000000001", "0.1000000000000000055511151231257827021181583404541015625",
		"1.00000000000000001", "12345678901234500.5", "100000000000000000001", "333333333.33333329", "0.30000000000000003",
		"1e309", "1e400", "-1e400", "1.7976931348623158e308", "1.7976931348623159e308", "9e308", "1e99999999999999999999999999",
		"1e-324", "1e-400", "2e-324", "3e-324", "6e-324", "4.9406564584124654e-324", "2.5e-324", "0.0000001e-330", "1e-99999999999999999999999999",
		"2.2250738585072011e-308", "1" + strings.Repeat("0", 309), "1e10000", "1e-10000",
		strings.Repeat("1", 300), "1." + strings.Repeat("0", 300) + "1",
	} {
		got := refusal(t, `{"a":[0,`+n+`]}`)
		require.Equal(t, strictjson.Error{Pointer: "/a/1", Reason: inexact, Offset: 8}, *got, n)
		require.NotContains(t, got.Error(), n)
	}
}

// strconv.ParseFloat, and with it jcs, reads 1 written with 9000 zeros as 0: it
// would share an identity with 0. Such numbers are refused before that.
func TestNumbersTooLongForTheCanonicalForm(t *testing.T) {
	for _, zeros := range []int{strictjson.MaxNumber, 801, 9000, 99_999, 200_000} {
		for _, n := range []string{
			"1" + strings.Repeat("0", zeros) + "e-" + strconv.Itoa(zeros),
			"0." + strings.Repeat("0", zeros) + "1e" + strconv.Itoa(zeros+1),
			"1." + strings.Repeat("0", zeros),
			"0." + strings.Repeat("0", zeros),
			"1e" + strings.Repeat("0", zeros),
		} {
			require.Equal(t, "this number is longer than 400 characters; send it as a string", refusal(t, n).Reason, zeros)
		}
	}
	longest := "1." + strings.Repeat("0", strictjson.MaxNumber-2)
	require.Len(t, longest, strictjson.MaxNumber)
	canonical, err := strictjson.Canonical([]byte(longest))
	require.NoError(t, err)
	require.Equal(t, "1", string(canonical))
}

// At the edges of the shortcut for up to 15 digits, and at every power of ten,
// the rule agrees with exact arithmetic.
func TestNumberRuleAtEveryPower(t *testing.T) {
	for _, digits := range []string{"1", "9", "123456789012345", "999999999999999", "1234567890123456", "9999999999999999", "12345678901234567", "89255124013450307"} {
		for power := -345; power <= 310; power++ {
			requireOracle(t, digits+"e"+strconv.Itoa(power))
		}
	}
}

// Doubles at random places: what each prints is accepted, its neighbours in the
// last digit are judged as the oracle judges them.
func TestWhatADoublePrintsIsExact(t *testing.T) {
	bits := uint64(0x9e3779b97f4a7c15)
	for range 5_000 {
		bits = bits*6364136223846793005 + 1442695040888963407
		f := math.Float64frombits(bits)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		printed := strconv.FormatFloat(f, 'e', -1, 64)
		require.NoError(t, strictjson.Check([]byte(printed)), printed)
		requireOracle(t, strconv.FormatFloat(f, 'e', 16, 64))
		requireOracle(t, strconv.FormatFloat(f, 'e', 15, 64))
		requireOracle(t, strconv.FormatFloat(f, 'e', 17, 64))
	}
}

// oracle judges a number by the rule's own words, with exact rationals: the
// value of the text against the value of what its double prints.
func oracle(token string) bool {
	double, err := strconv.ParseFloat(token, 64)
	if err != nil {
		return false
	}
	value, ok := new(big.Rat).SetString(token)
	printed, ok2 := new(big.Rat).SetString(strconv.FormatFloat(double, 'g', -1, 64))
	return ok && ok2 && value.Cmp(printed) == 0
}

func requireOracle(t *testing.T, token string) {
	t.Helper()
	err := strictjson.Check([]byte(token))
	if oracle(token) {
		require.NoError(t, err, token)
		return
	}
	require.Error(t, err, token)
}

func FuzzNumberRule(f *testing.F) {
	f.Add("9007199254740993", "", "", false)
	f.Add("0", "10000000000000000555", "", false)
	f.Add("1", "", "400", true)
	f.Add("49406564584124654", "", "-340", false)
	f.Add("179769313486231570", "000", "+0291", false)
	f.Add("0", "00000000000000000000001234567890123456789", "40", true)
	f.Add("12345678901234567890000000000000", "", "-15", false)
	f.Fuzz(func(t *testing.T, whole, fraction, exponent string, negative bool) {
		token := whole
		if negative {
			token = "-" + token
		}
		if fraction != "" {
			token += "." + fraction
		}
		if exponent != "" {
			token += "e" + exponent
		}
		if !numberGrammar.MatchString(token) || len(token) > strictjson.MaxNumber || len(exponent) > 5 {
			return
		}
		requireOracle(t, token)
	})
}

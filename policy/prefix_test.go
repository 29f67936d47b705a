package policy_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routefence/routefence/policy"
)

func TestParsePrefix(t *testing.T) {
	for _, c := range []struct{ in, want, warning string }{
		{"10.250.0.0/16", "10.250.0.0/16", ""},
		{"0010::/16", "10::/16", ""},
		{" \t10.250.0.0/16\u00a0", "10.250.0.0/16", ""},
		{"10.1.2.3/32", "10.1.2.3/32", ""},
		{"10.1.2.3/16", "10.1.0.0/16", "10.1.2.3/16 has host bits set, read as 10.1.0.0/16"},
		{"fd00:250::1/48", "fd00:250::/48", "fd00:250::1/48 has host bits set, read as fd00:250::/48"},
		{"FD00:0250::/48", "fd00:250::/48", ""},
		{"::ffff:10.250.0.0/112", "10.250.0.0/16", "::ffff:10.250.0.0/112 is IPv4-mapped, read as 10.250.0.0/16"},
		{"::ffff:10.250.0.9/112", "10.250.0.0/16", "::ffff:10.250.0.9/112 has host bits set, read as 10.250.0.0/16"},
		{"::ffff:0a01:0203/128", "10.1.2.3/32", "::ffff:10.1.2.3/128 is IPv4-mapped, read as 10.1.2.3/32"},
		{"126.0.0.0/8", "126.0.0.0/8", ""},
		{"240.0.0.0/8", "240.0.0.0/8", ""},
		{"1.0.0.0/8", "1.0.0.0/8", ""},
		{"64.0.0.0/3", "64.0.0.0/3", ""},
		{"96.0.0.0/3", "", "96.0.0.0/3 contains loopback (127.0.0.0/8)"},
		{"fec0::/10", "fec0::/10", ""},
		{"64:ff9b::/96", "64:ff9b::/96", ""},
	} {
		got, warning, err := policy.ParsePrefix(c.in)
		switch {
		case c.want == "":
			if err == nil || !strings.Contains(err.Error(), c.warning) {
				t.Errorf("%q: got %v, %v, want an error with %q", c.in, got, err, c.warning)
			}
		case err != nil || got.String() != c.want || warning != c.warning:
			t.Errorf("%q: got %v, %q, %v, want %s, %q", c.in, got, warning, err, c.want, c.warning)
		}
	}
}

func TestParsePrefixRefuses(t *testing.T) {
	for _, c := range []struct{ in, why string }{
		{"", "empty"},
		{"/", "not an IP network"},
		{"/16", "not an IP network"},
		{"eth0", "not an IP network"},
		{"10.300.0.0/16", "IPv4 field has value >255"},
		{"10.250.0/16", "IPv4 address too short"},
		{"10.250.0.0.0/16", "IPv4 address too long"},
		{"10.250.00.0/16", "leading zero"},
		{"010.250.0.0/16", "leading zero"},
		{"10.250.0.0/016", "leading zeros"},
		{"10.250.0.0/33", "0 to 32"},
		{"10.250.0.0/", "0 to 32"},
		{"10.250.0.0/-1", "0 to 32"},
		{"10.250.0.0/+16", "0 to 32"},
		{"10.250.0.0/16/16", "0 to 32"},
		{"10.250.0.0/255.255.0.0", "0 to 32"},
		{"10.250.0.0 /16", "not an IP network"},
		{"10.250.0.0\x00/16", "not an IP network"},
		{"fd00::/129", "0 to 128"},
		{"fd00:::/48", "not an IP network"},
		{"[fd00::]/48", "not an IP network"},
		{"10.1.2.3", "write 10.1.2.3/32 for one address"},
		{"fd00::1", "write fd00::1/128 for one address"},
		{"::ffff:10.1.2.3", "write 10.1.2.3/32 for one address"},
		{"fe80::1%eth0/64", `zone "eth0"`},
		{"fd00::1%1/64", `zone "1"`},
		{"0.0.0.0/0", "every address"},
		{"10.0.0.0/0", "every address"},
		{"::/0", "every address"},
		{"0.0.0.0/8", "unspecified"},
		{"0.0.0.0/32", "unspecified"},
		{"0.0.0.0/1", "contains"},
		{"128.0.0.0/1", "contains link-local (169.254.0.0/16)"},
		{"127.0.0.0/8", "belongs to loopback"},
		{"127.0.0.1/32", "belongs to loopback"},
		{"127.0.0.0/7", "126.0.0.0/7 contains loopback (127.0.0.0/8)"},
		{"169.254.0.0/16", "link-local"},
		{"169.254.1.1/32", "link-local"},
		{"168.0.0.0/7", "contains link-local (169.254.0.0/16)"},
		{"224.0.0.0/4", "multicast"},
		{"239.1.0.0/16", "multicast"},
		{"255.255.255.255/32", "limited broadcast"},
		{"255.0.0.0/8", "contains limited broadcast"},
		{"::/128", "unspecified"},
		{"::1/128", "loopback"},
		{"::/127", "contains the unspecified address"},
		{"::/1", "contains"},
		{"8000::/1", "contains link-local"},
		{"fe80::/64", "link-local"},
		{"fe00::/8", "contains link-local (fe80::/10)"},
		{"ff02::1/128", "multicast"},
		{"::ffff:0:0/96", "every address"},
		{"::ffff:10.0.0.0/95", "contains the IPv4-mapped addresses"},
		{"::fffe:0:0/95", "contains the IPv4-mapped addresses"},
		{"::ffff:127.0.0.1/128", "loopback"},
		{"::ffff:10.1.2.3%eth0/128", "zone"},
	} {
		p, _, err := policy.ParsePrefix(c.in)
		if err == nil {
			t.Errorf("%q: got %v, want an error", c.in, p)
			continue
		}
		if !strings.Contains(err.Error(), c.why) || (c.in != "" && !strings.Contains(err.Error(), `"`)) {
			t.Errorf("%q: error %q does not name the item and %q", c.in, err, c.why)
		}
	}
}

func TestParseList(t *testing.T) {
	many := strings.Repeat("x,", 100_000)
	for _, c := range []struct {
		name, in string
		want     []string
		warnings int
		problems []string
	}{
		{"FR-25", "\ufeff 10.250.0.0/16, ,10.251.0.0/16;\r\n10.250.0.0/16,10.250.128.0/17,\t\u00a0fd00:250::/48,",
			[]string{"10.250.0.0/16", "10.251.0.0/16", "10.250.128.0/17", "fd00:250::/48"}, 0, nil},
		{"FR-28", "fd00:250::/48, 10.250.0.0/16, fe80::/64, fe80::1%eth0/64, ::1/128", []string{"fd00:250::/48", "10.250.0.0/16"},
			0, []string{`"fe80::/64"`, `"fe80::1%eth0/64"`, `"::1/128"`}},
		{"FR-22", "10.1.2.3/16 10.1.0.0/16 fd00:250::1/48 10.1.2.3/16", []string{"10.1.0.0/16", "fd00:250::/48"}, 2, nil},
		{"nothing", " ,;\r\n# 10.1.0.0/16\n", nil, 0, nil},
		{"bad item among good", "10.1.0.0/16\n10.300.0.0/16\n10.2.0.0/16", []string{"10.1.0.0/16", "10.2.0.0/16"}, 0,
			[]string{`"10.300.0.0/16": not an IP network: IPv4 field has value >255`}},
		{"comments", "#10.9.0.0/16, 10.8.0.0/16\n10.1.0.0/16 # one, 10.7.0.0/16\r10.2.0.0/16#two##\r\n10.3.0.0/16 #",
			[]string{"10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"}, 0, nil},
		{"lone CR and NEL", "10.1.0.0/16\r10.2.0.0/16\u008510.3.0.0/16\u202810.4.0.0/16",
			[]string{"10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.4.0.0/16"}, 0, nil},
		{"no UTF-8", "\xff\xfe,10.1.0.0/16", []string{"10.1.0.0/16"}, 0, []string{`"\xff\xfe"`}},
		{"other separators are none", "10.1.0.0/16|10.2.0.0/16", nil, 0, []string{"0 to 32"}},
		{"long junk is cut", strings.Repeat("9", 4000), nil, 0, []string{`9"...`}},
		{"much junk is counted", many, nil, 0, append(slices.Repeat([]string{`"x"`}, 100), "and 99900 more")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, warnings, problems := policy.ParseList(c.in)
			if diff := cmp.Diff(c.want, texts(got)); diff != "" {
				t.Errorf("networks (-want +got):\n%s", diff)
			}
			if len(warnings) != c.warnings {
				t.Errorf("warnings %q, want %d", warnings, c.warnings)
			}
			if len(problems) != len(c.problems) {
				t.Fatalf("problems %q, want %q", problems, c.problems)
			}
			for i, want := range c.problems {
				if got := problems[i].Error(); !strings.Contains(got, want) || len(got) > 300 {
					t.Errorf("problem %q, want %q in it", got, want)
				}
			}
		})
	}
}

func texts(prefixes []netip.Prefix) (out []string) {
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return out
}

// neverFenced is written apart from the parser's own table, as an address in each corner of what must be refused.
var neverFenced = []string{"0.0.0.0", "0.255.255.255", "127.0.0.0", "127.255.255.255", "169.254.0.0", "169.254.255.255",
	"224.0.0.0", "239.255.255.255", "255.255.255.255", "::", "::1", "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ff00::",
	"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::ffff:0.0.0.0", "::ffff:255.255.255.255", "::ffff:10.0.0.0"}

func checkCanonical(t *testing.T, p netip.Prefix) {
	t.Helper()
	if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || p.Bits() == 0 {
		t.Fatalf("%v is not canonical", p)
	}
	for _, a := range neverFenced {
		if p.Contains(netip.MustParseAddr(a)) {
			t.Fatalf("%v contains %s", p, a)
		}
	}
	again, warning, err := policy.ParsePrefix(p.String())
	if again != p || warning != "" || err != nil {
		t.Fatalf("%v read again: %v, %q, %v", p, again, warning, err)
	}
}

// TestParseAllow: what is read as ParseList reads it, and that nothing is opened which was not written.
func TestParseAllow(t *testing.T) {
	for _, c := range []struct{ in, want, err string }{
		{"", "", ""},
		{" , ,", "", ""},
		{"10.250.3.0/24,fd00:250::7/128", "10.250.3.0/24 fd00:250::7/128", ""},
		{"10.250.3.0/24 10.250.4.0/24;10.250.3.0/24 # 10.250.5.1/24", "10.250.3.0/24 10.250.4.0/24", ""},
		{"::ffff:10.250.0.0/112", "10.250.0.0/16", ""},
		{"::ffff:10.250.3.7/128", "10.250.3.7/32", ""},
		{"::ffff:10.250.3.7/112", "", `"::ffff:10.250.3.7/112": has host bits set; write 10.250.0.0/16 to open all of it, or 10.250.3.7/32 to open that address alone`},
		{"10.250.3.0/24 fd00:250::7/64", "", `"fd00:250::7/64": has host bits set; write fd00:250::/64 to open all of it, or fd00:250::7/128`},
		{"10.250.3.0/24,10.250.3.7", "", `"10.250.3.7": has no prefix length`},
		{"127.0.0.1/8", "", `"127.0.0.1/8": 127.0.0.0/8 belongs to loopback`},
	} {
		got, err := policy.ParseAllow(c.in)
		var names []string
		for _, p := range got {
			names = append(names, p.String())
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) || strings.Join(names, " ") != c.want {
			t.Errorf("%q: got %v, %v, want %q, %q", c.in, got, err, c.want, c.err)
		}
	}
}

func FuzzParsePrefix(f *testing.F) {
	for _, s := range []string{"10.250.0.0/16", "10.1.2.3/16", "::ffff:10.250.0.0/112", "fd00:250::1/48", "fe80::1%eth0/64", "127.0.0.0/7",
		"::/1", "10.1.2.3", "010.0.0.0/8", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, _, err := policy.ParsePrefix(s)
		if err != nil {
			if p.IsValid() {
				t.Fatalf("%q: both %v and %v", s, p, err)
			}
			return
		}
		checkCanonical(t, p)
	})
}

func FuzzParseList(f *testing.F) {
	f.Add("10.250.0.0/16, ,10.251.0.0/16;\r\n10.250.0.0/16 # x\n\tfd00:250::/48,")
	f.Add("10.1.2.3/16\u00a0fe80::/64\ufeff")
	f.Fuzz(func(t *testing.T, text string) {
		prefixes, warnings, problems := policy.ParseList(text)
		if len(warnings) > 100 || len(problems) > 101 {
			t.Fatalf("%d warnings, %d problems", len(warnings), len(problems))
		}
		for i, p := range prefixes {
			checkCanonical(t, p)
			if slices.Contains(prefixes[:i], p) {
				t.Fatalf("%v twice", p)
			}
		}
		again, w, e := policy.ParseList(strings.Join(texts(prefixes), "\n"))
		if !slices.Equal(again, prefixes) || len(w)+len(e) > 0 {
			t.Fatalf("%v read again: %v, %v, %v", prefixes, again, w, e)
		}
	})
}

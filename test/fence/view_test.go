package fence

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/firewall/nfnetlink"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/routes/rtnl"
	"github.com/routefence/routefence/test/rig"
)

// view looks at the pod's namespace often enough to tell when a repair was done, without starting programs that would
// take the time they measure.
type view struct {
	r       *rig.Rig
	backend string
	kernel  *rtnl.Kernel
}

func newView(t *testing.T, r *rig.Rig, backend string) *view {
	t.Helper()
	v := &view{r: r, backend: backend}
	if err := r.Pod.Do(func() (err error) { v.kernel, err = rtnl.New(); return err }); err != nil {
		t.Fatal(err)
	}
	return v
}

// quick changes whenever the fence does. The legacy backend has no number that counts its changes, so it is listed.
func (v *view) quick() string {
	var b strings.Builder
	s, err := v.kernel.List()
	fmt.Fprint(&b, err)
	for _, l := range s.Links {
		fmt.Fprintln(&b, l.Name, l.Group)
	}
	for _, rule := range s.Rules {
		fmt.Fprintln(&b, rule)
	}
	for _, route := range s.Routes {
		if route.Table == routes.Table {
			fmt.Fprintln(&b, route)
		}
	}
	_ = v.r.Pod.Do(func() error {
		generation, err := nfnetlink.Conn{}.Generation()
		fmt.Fprint(&b, generation, err)
		return nil
	})
	if v.backend == "legacy" {
		b.WriteString(v.rules())
	}
	return b.String()
}

// full is the fence and all that is foreign, as programs other than ours show it.
func (v *view) full() string {
	var b strings.Builder
	for _, line := range []string{"ip rule", "ip -6 rule", "ip route show table 9604", "ip -6 route show table 9604",
		"ip route show table main", "ip -6 route show table main", "ip -br -d link show eth0"} {
		out, err := v.r.Pod.Try(line)
		fmt.Fprintln(&b, out, err)
	}
	return b.String() + v.rules()
}

// rules lists the rules chain by chain. Which tables and chains our jumps remember to have made differs after somebody
// took them away, so that part of the mark is left out.
func (v *view) rules() string {
	var all []string
	for _, family := range families {
		out, err := v.r.Pod.Try(program(family, v.backend) + "-save")
		if err != nil {
			return err.Error()
		}
		table := ""
		for line := range strings.Lines(out) {
			switch {
			case line[0] == '*':
				table = line[1:]
			case line[0] == '-':
				for _, made := range []string{`"routefence: made table"`, `"routefence: made chain"`} {
					line = strings.Replace(line, made, "routefence", 1)
				}
				all = append(all, family+table+line)
			}
		}
	}
	// Stable, by the chain: the order of chains is that of their making, the order of rules in them matters.
	slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(chainOf(a), chainOf(b)) })
	return strings.Join(all, "")
}

func chainOf(line string) string {
	table, rule, _ := strings.Cut(line, "\n")
	return table + " " + strings.Fields(rule)[1]
}

// quiet is how long nothing may change for a repair to count as done; then it is compared.
const quiet = 60 * time.Millisecond

// untilRepaired returns how long after begin the last change was seen that led back to want.
func (v *view) untilRepaired(begin time.Time, want string, limit time.Duration) (took time.Duration, got string) {
	last, changed := "", begin
	for time.Since(begin) < limit {
		time.Sleep(4 * time.Millisecond)
		if now := v.quick(); now != last {
			last, changed = now, time.Now()
		} else if time.Since(changed) > quiet {
			if got = v.full(); got == want {
				return changed.Sub(begin), got
			}
			time.Sleep(quiet)
		}
	}
	return limit, got
}

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/routefence/routefence/cmd/internal/command"
)

func TestServeUsage(t *testing.T) {
	t.Setenv("POD_NAME", "")
	for args, want := range map[string]string{
		"--namespace=routefence":                                "--image: is not given",
		"--image=i":                                             "--namespace=: want the name",
		"--image=i --namespace=a/b":                             "--namespace=a/b: want the name",
		"--image=i --namespace=n --listen=9443":                 "--listen=9443: ",
		"--image=i --namespace=n --health-listen=x":             "--health-listen=x: ",
		"--image=i --namespace=n --serving-lifetime=4s":         "--serving-lifetime=4s: must be at least 5s",
		"--image=i --namespace=n --ca-lifetime=200h":            "--ca-lifetime=200h0m0s: must be at least twice --serving-lifetime=168h0m0s",
		"--image=i --namespace=n --bundle-settle=400h":          "--bundle-settle=400h0m0s: must be at most a tenth of --ca-lifetime=1440h0m0s",
		"--image=i --namespace=n --cluster-timeout=10s":         "--cluster-timeout=10s: want more than 0 and at most 3s",
		"--image=i --namespace=n --drain=-1s":                   "--drain=-1s: must not be negative",
		"--image=i --namespace=n --webhook-log-level=loud":      "--webhook-log-level=loud: want one of",
		"--image=i --namespace=n --webhook-log-format=xml":      "--webhook-log-format=xml: want one of",
		"--image=i --namespace=n --source=elsewhere":            "elsewhere",
		"--image=i --namespace=n --kubeconfig=/nowhere extra":   `unknown command "extra"`,
		"--image=i --namespace=n --secret= --configuration=one": "--secret=: want the name",
	} {
		var out, errs bytes.Buffer
		code := runTo(&out, &errs, "", append([]string{"serve"}, strings.Fields(args)...)...)
		if code != command.Mistake || !strings.Contains(errs.String(), want) || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, errs.String(), want)
		}
	}
}

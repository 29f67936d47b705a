package rotation

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/routefence/routefence/pki"
)

// requestTime bounds a request.
const requestTime = 10 * time.Second

// The keys of the Secret.
const (
	certsKey = "ca.crt"
	keysKey  = "ca.key"
)

// object is where an object of the API is.
type object struct{ list, name string }

func (o object) path() string { return o.list + "/" + o.name }

// tree is an object with all its fields, known or not.
type tree = map[string]any

func conflict(err error) bool { return apierrors.IsConflict(err) }

func (o object) read(ctx context.Context, api API) (tree, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	body, err := api.Get(ctx, o.path(), nil)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o.path(), err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o.path(), err)
	}
	return parse(data)
}

func (o object) write(ctx context.Context, api API, t tree) (tree, error) {
	data, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", o.path(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	if data, err = api.Put(ctx, o.path(), data); err != nil {
		return nil, fmt.Errorf("write %s: %w", o.path(), err)
	}
	return parse(data)
}

// parse keeps numbers as they are written.
func parse(data []byte) (t tree, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return t, d.Decode(&t)
}

func version(t tree) string {
	metadata, _ := t["metadata"].(tree)
	text, _ := metadata["resourceVersion"].(string)
	return text
}

// keepSecret reads the authorities, and writes them if they are not what they shall be.
func (k *Keeper) keepSecret(ctx context.Context, api API, now time.Time) (string, error) {
	t, err := k.secret.read(ctx, api)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("%w; apply the manifests again: this program may not make it", err)
	}
	if err != nil {
		return "", err
	}
	stored, err := authorities(t)
	if err != nil {
		k.Log.Warn("the Secret is unreadable and written anew", zap.String("secret", k.secret.path()), zap.Error(err))
	}
	next, err := k.Plan.Authorities(stored, k.authorities, now)
	if err != nil {
		return "", err
	}
	if bytes.Equal(pki.Bundle(stored), pki.Bundle(next)) {
		k.take(next)
		return version(t), nil
	}
	if err := put(t, next); err != nil {
		return "", err
	}
	// What was not written is not used: another replica may have been faster.
	if t, err = k.secret.write(ctx, api, t); err != nil {
		k.take(stored)
		return "", err
	}
	k.Log.Info("authorities written", zap.Int("were", len(stored)), zap.Int("are", len(next)))
	if !known(next[0], stored) && !known(next[0], k.authorities) {
		k.update(func(s *State) { s.Authorities++ })
	}
	k.take(next)
	return version(t), nil
}

func known(a pki.Authority, among []pki.Authority) bool {
	return slices.ContainsFunc(among, func(b pki.Authority) bool { return a.Fingerprint() == b.Fingerprint() })
}

// take makes authorities those that are believed in. Nothing takes the last one away.
func (k *Keeper) take(authorities []pki.Authority) {
	if len(authorities) == 0 {
		return
	}
	k.authorities = authorities
	k.update(func(s *State) { s.Authority = authorities[0].Cert })
}

func authorities(t tree) ([]pki.Authority, error) {
	data, _ := t["data"].(tree)
	certs, first := decode64(data[certsKey])
	keys, second := decode64(data[keysKey])
	if err := errors.Join(first, second); err != nil {
		return nil, err
	}
	return pki.Decode(certs, keys)
}

func put(t tree, authorities []pki.Authority) error {
	certs, keys, err := pki.Encode(authorities)
	if err != nil {
		return err
	}
	data, _ := t["data"].(tree)
	if data == nil {
		data = tree{}
		t["data"] = data
	}
	data[certsKey], data[keysKey] = base64.StdEncoding.EncodeToString(certs), base64.StdEncoding.EncodeToString(keys)
	return nil
}

func decode64(value any) ([]byte, error) {
	text, _ := value.(string)
	return base64.StdEncoding.DecodeString(text)
}

// keepBundles sees to it that every webhook of the live configuration has the bundle, whoever wiped or replaced it.
func (k *Keeper) keepBundles(ctx context.Context, api API) (string, error) {
	t, err := k.configuration.read(ctx, api)
	if err != nil {
		return "", err
	}
	want := pki.Bundle(k.authorities)
	if !setBundles(t, want) {
		k.see(bundles(t))
		return version(t), nil
	}
	if t, err = k.configuration.write(ctx, api, t); err != nil {
		return "", err
	}
	k.Log.Info("bundle written", zap.String("configuration", k.configuration.name), zap.Int("authorities", len(k.authorities)))
	k.update(func(s *State) { s.Repairs++ })
	k.see(bundles(t))
	return version(t), nil
}

func (k *Keeper) see(live [][]byte) {
	k.bundles = live
	k.update(func(s *State) { s.Bundles = live })
}

// clients are where the webhooks of a configuration say whom to trust.
func clients(t tree) []tree {
	var out []tree
	webhooks, _ := t["webhooks"].([]any)
	for _, w := range webhooks {
		webhook, _ := w.(tree)
		if client, ok := webhook["clientConfig"].(tree); ok {
			out = append(out, client)
		}
	}
	return out
}

// setBundles returns whether anything was to be changed.
func setBundles(t tree, want []byte) (changed bool) {
	text := base64.StdEncoding.EncodeToString(want)
	for _, c := range clients(t) {
		changed = changed || c["caBundle"] != text
		c["caBundle"] = text
	}
	return changed
}

func bundles(t tree) [][]byte {
	var out [][]byte
	for _, c := range clients(t) {
		b, err := decode64(c["caBundle"])
		if err != nil {
			b = nil // trusts nobody
		}
		out = append(out, b)
	}
	return out
}

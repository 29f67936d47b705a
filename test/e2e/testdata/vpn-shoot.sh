#!/bin/sh
# The vpn-shoot container: forwarding, masquerading and translation as vpn2's vpn-client sets them up, then OpenVPN. While
# /etc/vpn/broken exists, OpenVPN does not run though the pod does.
set -eu
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
for device in all default eth0; do echo 0 >/proc/sys/net/ipv4/conf/$device/rp_filter; done
if [ "$ADDRESS" ]; then
	ip tuntap add dev "$DEVICE" mode tap
	ip address add "$ADDRESS" dev "$DEVICE"
	ip link set "$DEVICE" up
fi
for iptables in iptables-legacy ip6tables-legacy; do
	$iptables -A FORWARD -i "$DEVICE" -j ACCEPT
	$iptables -t mangle -A POSTROUTING -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
	$iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE
done
for pair in $TRANSLATIONS; do
	iptables-legacy -t nat -A PREROUTING -i "$DEVICE" -d "${pair#*=}" -j NETMAP --to "${pair%=*}"
done
if [ "$ADDRESS" ] && [ "$TRANSLATIONS" ]; then
	ip route add 241.0.0.0/8 via "$PEER" dev "$DEVICE"
fi
set +e
echo started
while :; do
	while [ -e /etc/vpn/broken ]; do sleep 0.2; done
	openvpn --config /etc/vpn/client.conf &
	openvpn=$!
	while kill -0 $openvpn 2>/dev/null && [ ! -e /etc/vpn/broken ]; do sleep 0.2; done
	kill $openvpn 2>/dev/null
	wait $openvpn
	echo "OpenVPN has ended"
done

#!/usr/bin/busybox sh
# PID 1 of a node that kubeadm makes: containerd, `kubeadm init`, and a kubelet that starts as its unit in a
# distribution would, as soon as kubeadm has written the configuration.
b=/usr/bin/busybox
export PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin
$b mount --make-rshared /
# The root is for reading only.
for directory in /etc/cni /etc/kubernetes /usr/libexec/kubernetes; do
    $b mount -t tmpfs tmpfs $directory
done
$b mkdir -p /etc/cni/net.d /etc/kubernetes/manifests /var/lib /var/log
echo 1 > /proc/sys/net/ipv4/ip_forward
containerd --config /etc/cri/containerd.toml > /var/log/containerd.log 2>&1 &
until [ -S /run/containerd/containerd.sock ]; do $b sleep 0.05; done
{
    until [ -s /var/lib/kubelet/config.yaml ]; do $b sleep 0.05; done
    . /var/lib/kubelet/kubeadm-flags.env
    exec kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
        --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS
} > /var/log/kubelet.log 2>&1 &
kubeadm init --config /etc/kubeadm/kubeadm.yaml --ignore-preflight-errors=all > /var/log/kubeadm.log 2>&1
echo "kubeadm ended with $?"
kubectl --kubeconfig /etc/kubernetes/admin.conf apply -f /etc/kubeadm/network.json
# Complete before it is there.
$b cp /etc/kubernetes/admin.conf /var/admin.part
$b mv /var/admin.part /var/admin.conf
wait

/* Written by metrics.py: metrics of scikit-learn for the numbers that test_metrics.c makes. */
#define GOLDEN_ACCURACY           0.5
#define GOLDEN_ACCURACY_WEIGHTED  0.507847373036466
#define GOLDEN_TOP3               0.826
#define GOLDEN_PRECISION_MACRO    0.502322456058749
#define GOLDEN_PRECISION_MICRO    0.5
#define GOLDEN_PRECISION_WEIGHTED 0.50611029077416
#define GOLDEN_PRECISION_SAMPLES  0.509720665397813
#define GOLDEN_RECALL_MACRO       0.500681695128868
#define GOLDEN_RECALL_MICRO       0.5
#define GOLDEN_RECALL_WEIGHTED    0.5
#define GOLDEN_RECALL_SAMPLES     0.508846370114385
#define GOLDEN_F1_MACRO           0.499605186237503
#define GOLDEN_F1_MICRO           0.5
#define GOLDEN_F1_WEIGHTED        0.501100505595995
#define GOLDEN_F1_SAMPLES         0.507202990519343
#define GOLDEN_TABLE                                                                              \
    {                                                                                             \
        45, 10, 21, 3, 11, 5, 0, 6, 37, 11, 8, 10, 6, 0, 8, 4, 34, 6, 11, 12, 0, 8, 8, 11, 43, 3, \
            5, 0, 5, 8, 5, 11, 47, 6, 0, 11, 11, 7, 7, 12, 44, 0, 0, 0, 0, 0, 0, 0, 0             \
    }
#define GOLDEN_AUC                0.676703962353883
#define GOLDEN_AUC_WEIGHTED       0.659702842594005
#define GOLDEN_YES_ACCURACY       0.62
#define GOLDEN_YES_PRECISION      0.601990049751244
#define GOLDEN_YES_RECALL         0.626943005181347
#define GOLDEN_YES_F1             0.614213197969543
#define GOLDEN_LABELS_F1_MACRO    0.496002190580504
#define GOLDEN_LABELS_F1_MICRO    0.549413735343384
#define GOLDEN_LABELS_F1_WEIGHTED 0.661637776796921
#define GOLDEN_LABELS_ACCURACY    0.66375
#define GOLDEN_MAE                0.152247657622728
#define GOLDEN_MSE                0.0306133236471513
#define GOLDEN_RMSE               0.174966635811378
#define GOLDEN_R2                 0.916228520561348
#define GOLDEN_MAE_WEIGHTED       0.152199116050223
#define GOLDEN_R2_WEIGHTED        0.917036625866101
